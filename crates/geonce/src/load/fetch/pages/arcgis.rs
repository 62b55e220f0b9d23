//! Feature layers of ArcGIS: pages by counting, in the order of object ids, and what the layer says about its last edit.

use super::super::address::Address;
use super::super::client::Client;
use super::page::Page;
use super::{Reading, Trouble};
use crate::error::{Error, Kind, Result};
use serde_json::Value;

/// A query of a layer.
#[derive(Clone, Debug)]
pub(super) struct Query {
    pages: Address,
    layer: Address,
    /// The user's own offset.
    start: u64,
    order: Option<String>,
    page_features: Option<u64>,
}

/// What a layer says about itself. While it stays the same, so do the features, as far as the server tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    count: Option<u64>,
    edited: Option<i64>,
}

/// The path of the layer, if an address is that of a layer or of its query.
pub(super) fn layer_path(address: &Address) -> Option<&str> {
    let path = address.path().trim_end_matches('/');
    let layer = path.strip_suffix("/query").unwrap_or(path);
    let (service, number) = layer.rsplit_once('/')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_service = service.ends_with("/FeatureServer") || service.ends_with("/MapServer");
    (is_number && is_service).then_some(layer)
}

impl Query {
    pub(super) fn new(address: &Address) -> Result<Query> {
        let wrong = |why: &str| Error::new(Kind::Invalid, format!("the address {why}"));
        let layer = layer_path(address).ok_or_else(|| {
            wrong("is not that of an ArcGIS layer")
                .hint("https://host/arcgis/rest/services/roads/FeatureServer/0/query")
        })?;
        let number = |name: &str| match address.parameter(name).filter(|text| !text.is_empty()) {
            None => Ok(None),
            Some(text) => text.parse::<u64>().map(Some).map_err(|_| wrong(&format!("has a {name} that is no number"))),
        };
        let default = |name: &str, value: &str| {
            address.parameter(name).filter(|given| !given.trim().is_empty()).unwrap_or_else(|| value.to_owned())
        };
        let (place, fields) = (default("where", "1=1"), default("outFields", "*"));
        let with_query = format!("{layer}/query");
        // Only GeoJSON is read, whatever form the user looked at.
        let parameters =
            [("f", Some("geojson")), ("where", Some(place.as_str())), ("outFields", Some(fields.as_str()))];
        let query = address.at_path(&with_query).with(&parameters);
        let token = address.parameter("token");
        let layer = address.with_path(layer).with(&[("f", Some("json")), ("token", token.as_deref())]);
        let (start, page_features) = (number("resultOffset")?.unwrap_or(0), number("resultRecordCount")?);
        let order = address.parameter("orderByFields").filter(|order| !order.trim().is_empty());
        Ok(Query { pages: query, layer, start, order, page_features })
    }

    /// Asks the layer about itself, and fills in what the user left open.
    pub(super) async fn standing(&mut self, client: &Client, reading: &mut Reading<'_>) -> Result<Standing> {
        // Some gateways let only the query through.
        let about = match reading.document(client, &self.layer).await {
            Err(error) if matches!(error.kind(), Kind::Missing | Kind::Permission | Kind::Invalid) => Value::Null,
            other => other?,
        };
        if about.pointer("/advancedQueryCapabilities/supportsPagination") == Some(&Value::Bool(false)) {
            let message = format!("{} cannot give its features in pages", client.show(&self.layer));
            return Err(Error::new(Kind::Invalid, message));
        }
        if self.order.is_none() {
            let field = object_id(&about).ok_or_else(|| {
                Error::new(Kind::Invalid, format!("{} does not name its object id", client.show(&self.layer))).hint(
                    "without an order pages overlap: add orderByFields=OBJECTID, or what it is called, to the address",
                )
            })?;
            self.order = Some(field);
        }
        if self.page_features.is_none() {
            self.page_features = about.get("maxRecordCount").and_then(Value::as_u64).filter(|&count| count > 0);
        }
        let counting = [("f", Some("json")), ("returnCountOnly", Some("true")), ("outFields", None)];
        let unpaged = [("orderByFields", None), ("resultOffset", None), ("resultRecordCount", None)];
        let count = reading.document(client, &self.pages.with(&counting).with(&unpaged)).await?;
        let edited = ["/editingInfo/dataLastEditDate", "/editingInfo/lastEditDate"];
        let edited = edited.iter().find_map(|pointer| about.pointer(pointer).and_then(Value::as_i64));
        Ok(Standing { count: count.get("count").and_then(Value::as_u64), edited })
    }

    /// The page behind `features` features.
    pub(super) fn page(&self, features: u64) -> Address {
        let offset = (self.start + features).to_string();
        let count = self.page_features.map(|count| count.to_string());
        self.pages.with(&[
            ("orderByFields", self.order.as_deref()),
            ("resultOffset", Some(&offset)),
            ("resultRecordCount", count.as_deref()),
        ])
    }

    /// Whether there is a page behind this one. Older servers do not say so in GeoJSON, but fill their pages.
    pub(super) fn has_next(&self, page: &Page) -> std::result::Result<bool, Trouble> {
        if page.exceeded && page.features == 0 {
            return Err(Trouble::Changed("a page is empty although there should be more".to_owned()));
        }
        Ok(page.exceeded || (page.features > 0 && Some(page.features) == self.page_features))
    }

    /// Whether the features are all, of one moment.
    pub(super) fn check(&self, before: &Standing, after: &Standing, features: u64) -> std::result::Result<(), Trouble> {
        if before != after {
            return Err(Trouble::Changed(format!("the layer was edited: {before} before, {after} after")));
        }
        match before.count.map(|count| count.saturating_sub(self.start)) {
            Some(count) if count != features => {
                Err(Trouble::Changed(format!("its pages have {features} features of {count}")))
            }
            _ => Ok(()),
        }
    }
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.count.map_or("?".to_owned(), |count| count.to_string());
        let edited = self.edited.map_or(String::new(), |edited| format!(" (last edit {edited})"));
        write!(f, "{count} features{edited}")
    }
}

/// The field that tells features apart.
fn object_id(about: &Value) -> Option<String> {
    let named = about.get("objectIdField").and_then(Value::as_str);
    let typed = || {
        let fields = about.get("fields")?.as_array()?.iter();
        let is_id = |field: &&Value| field.get("type").and_then(Value::as_str) == Some("esriFieldTypeOID");
        fields.clone().find(is_id)?.get("name")?.as_str()
    };
    named.or_else(typed).filter(|name| !name.is_empty()).map(str::to_owned)
}
