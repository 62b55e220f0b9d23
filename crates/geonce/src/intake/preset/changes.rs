//! What `ArcGIS` gives who asks for announced changes: what to ask, what an answer means, and the features in it. Sources:
//! "Extract Changes (Feature Service)" and "Webhooks - Payloads (Feature Service)" of the `ArcGIS` REST API.
//!
//! Every changed feature becomes an event: its state at the last of the announced numbers, or that it is gone. Its id is
//! made of organization, service, layer, the feature's own id and that number, so fetching twice makes the same events.

use super::arcgis::identified;
use super::esri::{self, Common};
use super::feature::{Feature, Properties};
use super::json::{Object, Value, quote};
use super::{Details, Fault, Payload, Payloads, Place, Request, missing, refuse, short, unusable};
use std::collections::{HashMap, HashSet};
use url::{Url, form_urlencoded};

/// What ids are known by.
const FEATURE: &str = "arcgis-feature";
/// What is asked for at the end of the path; nothing else is, because a token may allow more than reading.
const OPERATION: &str = "/FeatureServer/extractChanges";
/// The coordinate system that is asked for where the announcement asks for none.
const CRS: u32 = 4326;
/// The most characters of a server's words that are kept.
const WORDS_CHARS_MAX: usize = 300;
/// The longest address that is asked.
const URL_BYTES_MAX: usize = 8 << 10;
/// The most layers of an answer.
const LAYERS_MAX: usize = 10_000;
/// What is said of a feature beside its attributes.
const MEMBER: &str = "arcgis";

/// An announcement that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    /// Where the changes can be read, as the sender says.
    pub(crate) url: String,
    /// Of which organization and service, as JSON.
    organization: String,
    service: String,
    /// The numbers before and after the changes.
    numbers: [i64; 2],
    /// The coordinate system in which they are asked for.
    crs: u32,
}

/// What to send for an announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// Where to.
    pub(crate) url: Url,
    /// The form to be posted.
    pub(crate) form: String,
}

/// What an answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The changes.
    Changes,
    /// They are being gathered; this address tells when they are there.
    Ask(String),
    /// They are being gathered; ask again.
    Wait,
    /// They are at this address.
    Read(String),
    /// They could not be gathered.
    Failed(String),
    /// An error, which servers send as a success.
    Error {
        /// Its number, much like a status of HTTP; 498 and 499 are about the token.
        code: i64,
        /// What the server says.
        words: String,
    },
}

impl Announcement {
    /// The announcement in a payload that this preset made.
    pub(crate) fn of(payload: &[u8]) -> Result<Announcement, Fault> {
        let feature = Value::of(payload).and_then(Value::object);
        let properties = feature.and_then(|feature| feature.get("properties")).and_then(Value::object);
        let properties = properties.ok_or_else(|| missing("/properties", "properties"))?;
        let part = |name: &str| properties.get(name).ok_or_else(|| missing(format!("/properties/{name}"), name));
        let number = |name: &str| {
            let number = part(name)?.as_i64();
            number.ok_or_else(|| unusable(format!("/properties/{name}"), "this is no whole number"))
        };
        let at = |name: &str| format!("/properties/{name}");
        let url = part("changesUrl")?.as_str();
        let url = url.ok_or_else(|| unusable(at("changesUrl"), "changesUrl is a text"))?.into_owned();
        if url.len() > URL_BYTES_MAX {
            return Err(refuse(
                "limit_string",
                at("changesUrl"),
                format!("an address has at most {URL_BYTES_MAX} bytes"),
            ));
        }
        let organization = short(properties.get("orgId"), &at("orgId"))?.map_or("null", Value::text);
        let service = short(Some(part("serviceName")?), &at("serviceName"))?.map_or("null", Value::text);
        Ok(Announcement {
            crs: asked_crs(&url),
            url,
            organization: organization.to_owned(),
            service: service.to_owned(),
            numbers: [number("minServerGen")?, number("serverGen")?],
        })
    }

    /// What to send. The operation is posted: its parameters, as the sender gives them, with the format that is read here.
    pub(crate) fn question(&self) -> Result<Question, Fault> {
        let pointer = "/properties/changesUrl";
        let mut url = Url::parse(&self.url).map_err(|error| unusable(pointer, format!("changesUrl: {error}")))?;
        if !url.path().ends_with(OPERATION) {
            return Err(unusable(pointer, format!("changesUrl does not lead to {OPERATION}")));
        }
        let ours = [("f", "json".to_owned()), ("dataFormat", "json".to_owned()), ("outSR", self.crs.to_string())];
        let is_ours = |name: &str| ours.iter().any(|(ours, _)| ours.eq_ignore_ascii_case(name));
        let mut form = form_urlencoded::Serializer::new(String::new());
        for (name, value) in url.query_pairs().filter(|(name, _)| !is_ours(name)) {
            form.append_pair(&name, &value);
        }
        form.extend_pairs(&ours);
        let form = form.finish();
        url.set_query(None);
        Ok(Question { url, form })
    }

    /// The numbers that features are at. One that was announced is the same whenever it is asked for; where all changes
    /// since a number are, only the answer knows.
    fn versions<'a>(&self, root: &Object<'a>) -> Versions<'a> {
        let [after, to] = self.numbers;
        if after < to {
            return Versions::Announced(to);
        }
        let layers = root.get("layerServerGens").and_then(Value::elements).unwrap_or_default();
        let of_layer = |layer: Value<'a>| {
            let layer = layer.object()?;
            Some((layer.get("id")?.text(), layer.get("serverGen")?.as_i64()?))
        };
        Versions::Answered(layers.into_iter().filter_map(of_layer).collect())
    }
}

/// The numbers that features are at.
enum Versions<'a> {
    /// All at the one that was announced.
    Announced(i64),
    /// Each at that of its layer.
    Answered(HashMap<&'a str, i64>),
}

impl Versions<'_> {
    fn of(&self, layer: &str) -> Option<i64> {
        match self {
            Versions::Announced(to) => Some(*to),
            Versions::Answered(layers) => layers.get(layer).copied(),
        }
    }
}

/// The coordinate system that an address asks for, where it is a number.
fn asked_crs(url: &str) -> u32 {
    let asked = |url: Url| {
        let value = url.query_pairs().find(|(name, _)| name.eq_ignore_ascii_case("outSR"))?.1;
        value.trim().parse().ok()
    };
    Url::parse(url).ok().and_then(asked).map_or(CRS, esri::epsg)
}

/// What an answer is.
pub(crate) fn step(answer: &[u8]) -> Result<Step, Fault> {
    let unread = || unusable("", "the answer is no JSON object");
    let root = Value::of(answer).and_then(Value::object).ok_or_else(unread)?;
    if let Some(error) = root.some("error").and_then(Value::object) {
        let said = ["message", "description"].into_iter().find_map(|name| error.str(name));
        let words = said.map_or_else(String::new, |words| quoted(&words));
        return Ok(Step::Error { code: error.get("code").and_then(Value::as_i64).unwrap_or(0), words });
    }
    if root.some("edits").is_some() {
        return Ok(Step::Changes);
    }
    if let Some(status) = root.str("status") {
        if status.to_ascii_lowercase().contains("fail") || status.eq_ignore_ascii_case("CompletedWithErrors") {
            return Ok(Step::Failed(quoted(&status)));
        }
        let is_there = status.eq_ignore_ascii_case("Completed");
        return Ok(match root.str("resultUrl").filter(|url| is_there && !url.is_empty()) {
            Some(url) => Step::Read(url.into_owned()),
            None if is_there => Step::Failed("Completed, without a result".to_owned()),
            None => Step::Wait,
        });
    }
    for (name, step) in [("statusUrl", Step::Ask as fn(String) -> Step), ("resultUrl", Step::Read)] {
        if let Some(url) = root.str(name).filter(|url| !url.is_empty()) {
            return Ok(step(url.into_owned()));
        }
    }
    Err(missing("", "edits, statusUrl or resultUrl").with_hint("this is no answer of extractChanges"))
}

/// A server's words as people may see them.
fn quoted(words: &str) -> String {
    words.chars().take(WORDS_CHARS_MAX).map(|one| if one.is_control() { ' ' } else { one }).collect()
}

/// Every changed feature of an answer.
pub(in crate::intake) fn read(request: &Request<'_>, announcement: &Announcement) -> Result<Payloads, Fault> {
    let root = request.json()?.object().ok_or_else(|| unusable("", "the answer is no object"))?;
    let edits = root.get("edits").and_then(Value::elements).ok_or_else(|| unusable("/edits", "edits are a list"))?;
    if edits.len() > LAYERS_MAX {
        return Err(refuse("limit_features", "/edits", format!("more than {LAYERS_MAX} layers in one answer")));
    }
    let versions = announcement.versions(&root);
    let mut payloads = Vec::new();
    for (index, edit) in edits.into_iter().enumerate() {
        let at = format!("/edits/{index}");
        let edit = edit.object().ok_or_else(|| unusable(&*at, "an edit is an object"))?;
        layer(request, announcement, &versions, &edit, &at, &mut payloads)?;
    }
    Ok(Payloads { several: true, payloads })
}

/// The changed features of a layer.
fn layer(
    request: &Request<'_>,
    announcement: &Announcement,
    versions: &Versions<'_>,
    edit: &Object<'_>,
    at: &str,
    payloads: &mut Vec<Payload>,
) -> Result<(), Fault> {
    let Some(changed) = edit.some("features") else {
        if edit.some("objectIds").is_some() {
            return Err(unusable(format!("{at}/objectIds"), "the answer has only the ids of what changed")
                .with_hint("the announcement asks for returnIdsOnly"));
        }
        return Ok(());
    };
    let at = format!("{at}/features");
    let changed = changed.object().ok_or_else(|| unusable(&*at, "features are an object"))?;
    let id = edit.some("id").ok_or_else(|| missing(&*at, "id of the layer"))?;
    let number = short(Some(id), &at)?.map_or("null", Value::text);
    let version = versions
        .of(number)
        .ok_or_else(|| missing("/layerServerGens", "serverGen of the layer, and the announcement has only one"))?;
    let of = Layer { announcement, number, version, common: Common::of(edit, &at)?.or_in(announcement.crs), request };
    let mut gone = HashSet::new();
    for (name, deleted) in [("adds", false), ("updates", false), ("deletes", true)] {
        for (value, at) in elements(&changed, name, &at, request)? {
            if deleted && let Some(id) = value.object().and_then(|feature| own_id(&feature)) {
                gone.insert(id);
            }
            let made = of.feature(value, deleted, &at);
            of.push(payloads, made.unwrap_or_else(|fault| Payload::refused(value, at, fault)))?;
        }
    }
    for (value, at) in elements(&changed, "deleteIds", &at, request)? {
        match as_id(value) {
            Some(id) if gone.contains(&id) => {}
            Some(id) => of.push(payloads, of.tombstone(&id, at))?,
            None => {
                let fault = unusable(&*at, "an id is a text or a whole number");
                of.push(payloads, Payload::refused(value, at, fault))?;
            }
        }
    }
    Ok(())
}

/// The elements of a member that is a list, with their places. None where there is no such member.
fn elements<'a>(
    object: &Object<'a>,
    name: &str,
    at: &str,
    request: &Request<'_>,
) -> Result<Vec<(Value<'a>, String)>, Fault> {
    let Some(list) = object.some(name) else { return Ok(Vec::new()) };
    let list = list.elements().ok_or_else(|| unusable(format!("{at}/{name}"), format!("{name} are a list")))?;
    if list.len() > request.features_max {
        return Err(too_many(request));
    }
    Ok(list.into_iter().enumerate().map(|(index, one)| (one, format!("{at}/{name}/{index}"))).collect())
}

fn too_many(request: &Request<'_>) -> Fault {
    refuse("limit_features", "", format!("more than {} features in one answer", request.features_max))
        .with_hint("raise limits.features_max, then replay")
}

/// What the features of a layer have in common.
struct Layer<'a> {
    announcement: &'a Announcement,
    /// Its number, as JSON.
    number: &'a str,
    version: i64,
    common: Common,
    request: &'a Request<'a>,
}

impl Layer<'_> {
    fn push(&self, payloads: &mut Vec<Payload>, payload: Payload) -> Result<(), Fault> {
        if payloads.len() >= self.request.features_max {
            return Err(too_many(self.request));
        }
        payloads.push(payload);
        Ok(())
    }

    /// A feature as it is now, or was before it was deleted.
    fn feature(&self, value: Value<'_>, deleted: bool, at: &str) -> Result<Payload, Fault> {
        let object = value.object().ok_or_else(|| unusable(at, "a feature is an object"))?;
        let (mut feature, place, mut details) = esri::feature(&object, self.common, self.request.limits, at)?;
        feature.id = own_id(&object);
        feature.foreign = Some((MEMBER, self.said(deleted)));
        // Without an id of its own, a feature is known by all of it, its number included.
        details.delivery = feature.id.as_deref().map(|id| self.delivery(id));
        Ok(feature.payload(place, details))
    }

    /// A feature of which only its id is left.
    fn tombstone(&self, id: &str, at: String) -> Payload {
        let mut feature = Feature::new(None, Properties::new());
        feature.id = Some(id.to_owned());
        feature.foreign = Some((MEMBER, self.said(true)));
        let details = Details { delivery: Some(self.delivery(id)), ..Details::default() };
        feature.payload(Place { event: at, geometry: None }, details)
    }

    fn said(&self, deleted: bool) -> Properties {
        let mut said = Properties::new();
        said.put("orgId", &self.announcement.organization);
        said.put("serviceName", &self.announcement.service);
        said.put("layerId", self.number);
        said.put("serverGen", &self.version.to_string());
        said.put("deleted", if deleted { "true" } else { "false" });
        said
    }

    fn delivery(&self, id: &str) -> crate::intake::DeliveryId {
        let Announcement { organization, service, .. } = self.announcement;
        identified(FEATURE, format!("[{organization},{service},{},{id},{}]", self.number, self.version))
    }
}

/// The id of a feature, as JSON: its global id, or else its object id, by the names that these have unless somebody chose
/// others.
fn own_id(feature: &Object<'_>) -> Option<String> {
    let attributes = feature.some("attributes")?.object()?;
    let named = |wanted: &str| {
        let mut members =
            attributes.members().filter(|(name, value)| name.eq_ignore_ascii_case(wanted) && !value.is_null());
        members.next().and_then(|(_, value)| as_id(value))
    };
    ["globalid", "objectid", "fid"].into_iter().find_map(named)
}

/// An id in one form: global ids come with and without braces, and in either case.
fn as_id(value: Value<'_>) -> Option<String> {
    if let Some(number) = value.as_i64() {
        return Some(number.to_string());
    }
    let text = value.as_str()?;
    let bare = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(&text);
    (!bare.is_empty()).then(|| quote(&bare.to_ascii_uppercase()))
}
