//! Everything beside the coordinates: identity, version, ignored fields, fields outside the identity, and how
//! the JSON is written.

use super::found::{Found, is_id};
use super::reading::Reading;
use super::shown::{self, canonical_bytes};
use super::{Reason, ReasonCode, written};
use crate::identity::{left_out, payload_base};
use crate::json::{Tag, Value, pointer_token};
use crate::policy::{Field, Identity, Pointer, Unicode};
use std::borrow::Cow;
use std::fmt::Write as _;

/// What a difference of a value means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Identity,
    Ignored,
    Outside,
}

/// Compares two payloads member by member.
pub(super) fn compare(a: &Reading<'_>, b: &Reading<'_>, found: &mut Found) {
    written::forms(a, b, found);
    let mut walk = Walk {
        sides: [a, b],
        skip: [a, b].map(skipped),
        handled: [a, b].map(geometry_nodes),
        ignored_by_name: [a, b].map(ignored_properties),
        pointer: String::new(),
        array_at: None,
        found,
    };
    walk.version();
    walk.identity();
    walk.geometry_objects();
}

/// The nodes that an identity leaves out: the published list, and the policy's where it keeps the rest.
fn skipped(side: &Reading<'_>) -> Vec<usize> {
    let mut skip = Vec::new();
    if let Some(payload) = &side.payload {
        let ignore: &[Pointer] = match &side.policy.identity {
            Identity::Whole { ignore } => ignore,
            Identity::Fields(_) => &[],
        };
        left_out(payload, ignore, &mut skip);
    }
    skip
}

/// Nodes that the comparison of geometries looks at.
fn geometry_nodes(side: &Reading<'_>) -> Vec<usize> {
    let Some(payload) = &side.payload else { return Vec::new() };
    let mut nodes: Vec<usize> = Vec::new();
    let named = |object: Value<'_>, names: &[&str], nodes: &mut Vec<usize>| {
        nodes.extend(names.iter().filter_map(|name| object.get(name)).map(|value| value.at));
    };
    if let Some(feature) = payload.feature {
        named(feature, &["type", "geometry", "crs"], &mut nodes);
    }
    if let Some(geometry) = payload.geometry {
        named(geometry, &["type", "coordinates", "geometries", "crs"], &mut nodes);
    }
    nodes
}

/// Whether the policy ignores the properties as a whole; being empty otherwise hides them, too.
fn ignored_properties(side: &Reading<'_>) -> bool {
    let (Some(payload), Identity::Whole { ignore }) = (&side.payload, &side.policy.identity) else { return false };
    let Some(properties) = payload.properties else { return false };
    ignore.iter().filter_map(|p| payload.root.at_tokens(p.tokens())).any(|value| value.at == properties.at)
}

type Pair<'v> = [Option<Value<'v>>; 2];

struct Walk<'f, 'r, 'v> {
    sides: [&'r Reading<'v>; 2],
    skip: [Vec<usize>; 2],
    /// Nodes that something else has compared.
    handled: [Vec<usize>; 2],
    ignored_by_name: [bool; 2],
    /// Where the walk is.
    pointer: String,
    /// Length of the pointer of the outermost array around it: policies name members, not elements.
    array_at: Option<usize>,
    found: &'f mut Found,
}

impl<'r, 'v> Walk<'_, 'r, 'v>
where
    'v: 'r,
{
    fn bases(&self) -> Pair<'v> {
        self.sides.map(|side| side.base().map(|payload| payload_base(payload, side.policy)))
    }

    fn resolve(&self, pointer: &Pointer) -> Pair<'v> {
        self.bases().map(|base| base.and_then(|base| base.at_tokens(pointer.tokens())))
    }

    fn handle(&mut self, pair: Pair<'v>) {
        for (handled, value) in self.handled.iter_mut().zip(pair) {
            handled.extend(value.map(|value| value.at));
        }
    }

    fn version(&mut self) {
        let [a, b] = self.sides.map(|side| side.policy.version.as_ref());
        let (Some(at), Some(at_b)) = (a, b) else { return };
        let values = [self.resolve(at)[0], self.resolve(at_b)[1]];
        if at == at_b {
            self.handle(values);
        }
        let [canonical_a, canonical_b] = values.map(|value| shown::canonical(value, Unicode::Exact));
        if values.map(|value| canonical_bytes(value, Unicode::Exact)).windows(2).all(|pair| pair[0] == pair[1]) {
            return self.written_otherwise(values, at.as_str());
        }
        self.found.reason(Reason {
            pointer_b: (at != at_b).then(|| at_b.as_str().to_owned()),
            a: shown::value(values[0]),
            b: shown::value(values[1]),
            canonical_a,
            canonical_b,
            message: "two versions of one entity".to_owned(),
            ..Reason::new(ReasonCode::VersionField, at.as_str())
        });
    }

    fn identity(&mut self) {
        let [a, b] = self.sides;
        let roots = self.sides.map(|side| side.base().map(|payload| payload.root));
        let class = match (&a.policy.identity, &b.policy.identity) {
            (Identity::Fields(fields), Identity::Fields(others)) => {
                let common = |field: &&Field| others.iter().any(|other| other.at == field.at);
                for field in fields.iter().filter(common) {
                    self.field(field, fields);
                }
                Class::Outside
            }
            (Identity::Whole { .. }, Identity::Whole { .. }) => Class::Identity,
            // One list and one whole payload: the policy is the reason, whatever the values are.
            _ => return,
        };
        self.object(roots, class);
    }

    /// One value of an identity list.
    fn field(&mut self, field: &Field, fields: &[Field]) {
        let values = self.resolve(&field.at);
        self.handle(values);
        let rounded = |value: Option<Value<'v>>| {
            field.decimals.and_then(|places| Some(value?.node().decimal()?.round(places).even))
        };
        if let (Some(places), Some(a), Some(b)) = (field.decimals, rounded(values[0]), rounded(values[1])) {
            let same_number = canonical_bytes(values[0], Unicode::Exact) == canonical_bytes(values[1], Unicode::Exact);
            if a == b && !same_number {
                self.found.removed(ReasonCode::Precision, || Reason {
                    a: shown::value(values[0]),
                    b: shown::value(values[1]),
                    canonical_a: shown::grid(a, places),
                    canonical_b: shown::grid(b, places),
                    message: format!("the identity rounds it to {places} decimals"),
                    ..Reason::new(ReasonCode::Precision, field.at.as_str())
                });
                return;
            }
        }
        let kept: Vec<&str> = fields.iter().filter(|f| f.at != field.at).map(|f| f.at.as_str()).collect();
        let fix = (!kept.is_empty()).then(|| format!("identity = {}", pointer_list(&kept)));
        let before = self.found.reasons.items.len();
        let outer = std::mem::replace(&mut self.pointer, field.at.as_str().to_owned());
        // Inside a listed value everything counts, so that nothing is left out there.
        let skip = std::mem::take(&mut self.skip);
        self.pair(values, Class::Identity);
        self.skip = skip;
        self.pointer = outer;
        for reason in &mut self.found.reasons.items[before..] {
            reason.fix.clone_from(&fix);
            if fix.is_none() {
                "the identity differs: these are different events".clone_into(&mut reason.message);
            }
        }
    }

    /// Members of the geometry objects: their order, and those that mean nothing to a key.
    fn geometry_objects(&mut self) {
        // In an envelope a bare geometry's members are part of the payload, and compared with it.
        let own = |side: &Reading<'v>| {
            let payload = side.payload.as_ref()?;
            payload.geometry.filter(|_| payload.feature.is_some() || side.policy.feature.is_none())
        };
        if let (objects @ [Some(_), Some(_)], Some(payload)) = (self.sides.map(own), &self.sides[0].payload) {
            self.pointer = payload.geometry_pointer.to_string();
            self.geometry_object(objects);
            self.pointer.clear();
        }
    }

    fn geometry_object(&mut self, objects: Pair<'v>) {
        let nodes = |names: &[&str]| {
            objects.map(|object| {
                let found = |name: &&str| Some(object?.get(name)?.at);
                names.iter().filter_map(found).collect::<Vec<usize>>()
            })
        };
        self.handled = nodes(&["type", "coordinates", "geometries", "crs"]);
        self.skip = nodes(&["bbox", "links"]);
        self.object(objects, Class::Outside);
        let [Some(a), Some(b)] = objects.map(|object| object?.get("geometries")) else { return };
        let length = self.pointer.len();
        for (i, (a, b)) in a.elements().zip(b.elements()).enumerate() {
            let _ = write!(self.pointer, "/geometries/{i}");
            self.geometry_object([Some(a), Some(b)]);
            self.pointer.truncate(length);
        }
    }

    fn pair(&mut self, values: Pair<'v>, class: Class) {
        let unicode = self.sides.map(|side| side.policy.unicode);
        let equal = || canonical_bytes(values[0], unicode[0]) == canonical_bytes(values[1], unicode[1]);
        match values.map(|value| value.map(Value::tag)) {
            [None, None] => {}
            [Some(Tag::Object), Some(Tag::Object)] if class != Class::Ignored => self.object(values, class),
            [Some(Tag::Array), Some(Tag::Array)] if class != Class::Ignored => self.array(values, class),
            // An ignored container is one difference, whatever differs in it.
            [Some(Tag::Object), Some(Tag::Object)] if equal() => self.object(values, Class::Identity),
            [Some(Tag::Array), Some(Tag::Array)] if equal() => self.array(values, Class::Identity),
            [Some(_), Some(_)] if equal() => {
                let pointer = self.pointer.clone();
                self.written_otherwise(values, &pointer);
            }
            _ => self.difference(values, class),
        }
    }

    fn array(&mut self, values: Pair<'v>, class: Class) {
        let [Some(a), Some(b)] = values else { return };
        if a.node().count() != b.node().count() {
            return self.difference(values, class);
        }
        let outer = self.array_at;
        let length = self.pointer.len();
        self.array_at = outer.or(Some(length));
        for (i, (a, b)) in a.elements().zip(b.elements()).enumerate() {
            let _ = write!(self.pointer, "/{i}");
            self.pair([Some(a), Some(b)], class);
            self.pointer.truncate(length);
        }
        self.array_at = outer;
    }

    /// Compares members by name. A missing object, and null properties, are objects without members.
    fn object(&mut self, objects: Pair<'v>, class: Class) {
        let [names_a, names_b] = [self.names(objects[0], 0), self.names(objects[1], 1)];
        let length = self.pointer.len();
        let (mut i, mut j) = (0, 0);
        let mut order: Vec<(usize, usize)> = Vec::new();
        while i < names_a.len() || j < names_b.len() {
            let ordering = match (names_a.get(i), names_b.get(j)) {
                (Some(a), Some(b)) => a.name.cmp(&b.name),
                (Some(_), None) => std::cmp::Ordering::Less,
                _ => std::cmp::Ordering::Greater,
            };
            let a = names_a.get(i).filter(|_| ordering.is_le());
            let b = names_b.get(j).filter(|_| ordering.is_ge());
            i += usize::from(a.is_some());
            j += usize::from(b.is_some());
            let Some(either) = a.or(b) else { break };
            if let (Some(a), Some(b)) = (a, b) {
                order.push((a.index, b.index));
            }
            self.pointer.push_str(&pointer_token(&either.name));
            self.member([a.map(|a| a.value), b.map(|b| b.value)], class);
            self.pointer.truncate(length);
        }
        order.sort_unstable();
        if order.windows(2).any(|pair| pair[0].1 > pair[1].1) {
            let pointer = &self.pointer;
            self.found.removed(ReasonCode::KeyOrder, || Reason {
                message: "members in another order".to_owned(),
                ..Reason::new(ReasonCode::KeyOrder, pointer.as_str())
            });
        }
    }

    fn names(&self, object: Option<Value<'v>>, side: usize) -> Vec<Named<'v>> {
        let nfc = self.sides[side].policy.unicode == Unicode::Nfc;
        let text = |name: Value<'v>| {
            let text = name.as_str().unwrap_or_default();
            if nfc { Cow::Owned(unicode_normalization::UnicodeNormalization::nfc(&*text).collect()) } else { text }
        };
        let members = object.into_iter().flat_map(Value::members).enumerate();
        let mut names: Vec<Named<'v>> =
            members.map(|(index, (name, value))| Named { name: text(name), index, value }).collect();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        names
    }

    fn member(&mut self, values: Pair<'v>, class: Class) {
        let is_in = |lists: &[Vec<usize>; 2]| -> Vec<bool> {
            let present = lists.iter().zip(values).filter_map(|(list, value)| Some((list, value?)));
            present.map(|(list, value)| list.contains(&value.at)).collect()
        };
        if is_in(&self.handled).contains(&true) {
            return;
        }
        if let Some(ignored) = self.properties(values) {
            if ignored {
                return self.pair(values, Class::Ignored);
            }
            self.null_or_absent(values);
            return self.object(values, class);
        }
        let skipped = !self.skip[0].is_empty() || !self.skip[1].is_empty();
        let ignored = skipped && is_in(&self.skip).iter().all(|&left_out| left_out);
        self.pair(values, if ignored { Class::Ignored } else { class });
    }

    /// Whether these are the Feature's properties, and if so whether the policy ignores them.
    fn properties(&self, values: Pair<'v>) -> Option<bool> {
        let is_properties = |i: usize| {
            let properties = self.sides[i].payload.as_ref().and_then(|payload| payload.properties);
            properties.zip(values[i]).map(|(properties, value)| properties.at == value.at)
        };
        let known: Vec<bool> = (0..2).filter_map(is_properties).collect();
        let every = !known.is_empty() && known.iter().all(|&yes| yes);
        every.then(|| (0..2).all(|i| values[i].is_none() || self.ignored_by_name[i]))
    }

    fn null_or_absent(&mut self, values: Pair<'v>) {
        let form = |value: Option<Value<'v>>| match value.map(Value::tag) {
            None => "absent",
            Some(Tag::Null) => "null",
            Some(_) => "{}",
        };
        let empty = values.iter().flatten().all(|value| value.node().tag != Tag::Object || value.node().count() == 0);
        let [a, b] = values.map(form);
        if a != b && empty {
            let pointer = &self.pointer;
            self.found.removed(ReasonCode::NullOrAbsent, || Reason {
                a: a.to_owned(),
                b: b.to_owned(),
                message: "null, empty and absent properties are the same".to_owned(),
                ..Reason::new(ReasonCode::NullOrAbsent, pointer.as_str())
            });
        }
    }

    /// Equal values whose text differs.
    fn written_otherwise(&mut self, values: Pair<'v>, pointer: &str) {
        let [Some(a), Some(b)] = values else { return };
        let note = match (a.raw_string(), b.raw_string()) {
            (Some(raw_a), Some(raw_b)) if raw_a.0 != raw_b.0 => (ReasonCode::TextForm, "the same text"),
            _ if a.is_number() && b.is_number() => match written::number_note(a.number_text(), b.number_text()) {
                Some(code) => (code, "the same number"),
                None => return,
            },
            _ => return,
        };
        let unicode = self.sides[0].policy.unicode;
        self.found.removed(note.0, || Reason {
            a: shown::value(values[0]),
            b: shown::value(values[1]),
            canonical_a: shown::canonical(values[0], unicode),
            canonical_b: shown::canonical(values[1], unicode),
            message: format!("{}, written otherwise", note.1),
            ..Reason::new(note.0, pointer)
        });
    }

    fn difference(&mut self, values: Pair<'v>, class: Class) {
        let [a, b] = self.sides;
        let pointer = self.pointer.as_str();
        let named = &pointer[..self.array_at.unwrap_or(pointer.len())];
        let reason = |code: ReasonCode, message: &str, fix: Option<String>| Reason {
            a: shown::value(values[0]),
            b: shown::value(values[1]),
            canonical_a: shown::canonical(values[0], a.policy.unicode),
            canonical_b: shown::canonical(values[1], b.policy.unicode),
            message: message.to_owned(),
            fix,
            ..Reason::new(code, pointer)
        };
        match class {
            Class::Identity => {
                let is_id = is_id(named);
                let message = match values {
                    [Some(_), Some(_)] if is_id => "the identity differs: these are different events",
                    [Some(_), Some(_)] => "the identity differs",
                    _ => "only one of them has this value, and it is part of the identity",
                };
                // Ignoring what is named like an id would merge events: that is never advised.
                let fix = (!is_id).then(|| format!("ignore = {}", pointer_list(&[named])));
                self.found.reason(reason(ReasonCode::IdentityField, message, fix));
            }
            Class::Ignored => {
                let message = "not part of the identity";
                self.found.removed(ReasonCode::IgnoredField, || reason(ReasonCode::IgnoredField, message, None));
            }
            Class::Outside => {
                let message = "differs and is not part of the identity";
                let fix = outside_fix(a, named);
                self.found.outside(|| reason(ReasonCode::OutsideField, message, Some(fix)));
            }
        }
    }
}

struct Named<'v> {
    name: Cow<'v, str>,
    /// Which member of its object.
    index: usize,
    value: Value<'v>,
}

/// The identity with one more pointer; a bare geometry must become a Feature to have one.
fn outside_fix(side: &Reading<'_>, pointer: &str) -> String {
    let Identity::Fields(fields) = &side.policy.identity else {
        return "make it a property of a Feature: members of a geometry are not part of the identity".to_owned();
    };
    let mut list: Vec<&str> = fields.iter().map(|field| field.at.as_str()).collect();
    list.push(pointer);
    format!("identity = {}", pointer_list(&list))
}

/// Pointers as an array of TOML strings, which JSON strings are.
fn pointer_list(pointers: &[&str]) -> String {
    let mut out = Vec::new();
    for (i, pointer) in pointers.iter().enumerate() {
        out.extend_from_slice(if i == 0 { b"" } else { b", " });
        crate::jcs::write_string(pointer, &mut out);
    }
    format!("[{}]", String::from_utf8_lossy(&out))
}
