//! What is in force, as a `geonce.toml` that says the same when it is read again. Secrets are never written.

use super::human::{Size, Span};
use super::source::{ARRIVAL, OnStoreDown};
use super::store::ACCEPT_LOSS;
use super::verify::{self, LiveSecretSettings, Shown, VerifySettings};
use super::{ApiSettings, CacheSettings, FetchSettings, HIDDEN, LimitsSettings, Settings};
use super::{SinkSettings, SourceSettings, TestSettings};
use geonce::intake::preset::MapPlace;
use geonce::intake::{Identify, Invalid, Preset};
use geonce::retry::Retry;
use geonce::signature::{HmacScheme, Scheme};
use geonce::sink::{Columns, Mode};
use geonce_key::policy::{AssumedCrs, Deletion, Dimensions, Field, Identity, Lines, Parts, Unicode};
use geonce_key::{Pointer, Property};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::{Table, Value};

impl Settings {
    /// The text of a configuration file with everything that is in force.
    pub(crate) fn to_toml(&self) -> String {
        let mut out = String::from("# What is in force. Defaults are written out.\n");
        match &self.file {
            Some(file) => _ = writeln!(out, "# Read from {}.", file.display()),
            None => out.push_str("# There is no configuration file.\n"),
        }
        _ = writeln!(out, "# Flags: --listen {} --data {}", self.listen, self.data.display());
        let store = [
            ("url", text(&self.store.url.to_string())),
            ("window", span(self.store.options.window)),
            ("dead_retention", span(self.store.options.dead_retention)),
            ("keep_payload", self.store.options.keep_payload.into()),
            ("accept_loss", text(if self.store.options.accept_loss { ACCEPT_LOSS } else { "" })),
            ("lease", span(self.store.lease)),
            ("spill_max", text(&Size(self.store.spill_bytes_max).to_string())),
        ];
        section(&mut out, "[store]", store);
        if let Some(cache) = &self.cache {
            section(&mut out, "[cache]", cache_settings(cache));
        }
        for (name, source) in &self.sources {
            section(&mut out, &format!("[source.{}]", key(name)), source_settings(source));
        }
        for (name, sink) in &self.sinks {
            section(&mut out, &format!("[sink.{}]", key(name)), sink_settings(name, sink));
        }
        section(&mut out, "[limits]", limits(&self.limits));
        let log = [("level", text(&self.log.level.to_string())), ("format", text(self.log.format.as_str()))];
        section(&mut out, "[log]", log);
        section(&mut out, "[api]", api(&self.api));
        for test in &self.tests {
            section(&mut out, "[[test]]", test_settings(test));
        }
        out
    }
}

fn section(out: &mut String, head: &str, settings: impl IntoIterator<Item = (&'static str, Value)>) {
    _ = writeln!(out, "\n{head}");
    for (name, value) in settings {
        _ = writeln!(out, "{name} = {value}");
    }
}

/// A name as a part of a section's head.
fn key(name: &str) -> String {
    if name.contains('.') { format!("{name:?}") } else { name.to_owned() }
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn span(duration: Duration) -> Value {
    text(&Span(duration).to_string())
}

fn size(bytes: usize) -> Value {
    text(&Size(bytes as u64).to_string())
}

fn count(number: usize) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// A path that means the same wherever the saved file is put.
fn path(path: &Path) -> Value {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    text(&absolute.to_string_lossy())
}

fn list(values: impl IntoIterator<Item = Value>) -> Value {
    Value::Array(values.into_iter().collect())
}

fn table<'a>(settings: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Table(settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Table>())
}

fn secret(shown: &Shown) -> Value {
    match shown {
        Shown::Variable(name) => text(&format!("${{{name}}}")),
        Shown::File(file) => table([("file", path(file))]),
        Shown::Hidden => text(HIDDEN),
    }
}

fn api(api: &ApiSettings) -> Vec<(&'static str, Value)> {
    let mut all = vec![("remote", api.remote.into())];
    all.extend(api.token.as_ref().map(|(_, shown)| ("token", secret(shown))));
    all.extend(api.listen.map(|listen| ("listen", text(&listen.to_string()))));
    all
}

fn cache_settings(cache: &CacheSettings) -> Vec<(&'static str, Value)> {
    let mut all = vec![("url", text(&cache.url.to_string()))];
    all.extend(cache.prefix.as_deref().map(|prefix| ("prefix", text(prefix))));
    all.extend([("budget", span(cache.budget)), ("keys", count(cache.keys)), ("recent", count(cache.recent))]);
    all
}

fn source_settings(source: &SourceSettings) -> Vec<(&'static str, Value)> {
    let policy = &source.policy;
    let mut all = Vec::new();
    match &source.verify {
        Some(settings) => all.push(("verify", verify(settings))),
        None => all.push(("allow_unsigned", true.into())),
    }
    match &policy.identity {
        Identity::Whole { ignore } => all.push(("ignore", list(ignore.iter().map(|p| text(p.as_str()))))),
        Identity::Fields(fields) => all.push(("identity", field_list(fields))),
    }
    if source.arrival {
        all.push(("version", text(ARRIVAL)));
    }
    all.extend(policy.version.as_ref().map(|pointer| ("version", text(pointer.as_str()))));
    all.extend(source.lateness.map(|lateness| ("lateness", span(lateness))));
    all.extend(policy.delete.as_ref().map(|deletion| ("delete", delete(deletion))));
    let identify = match source.identify {
        Identify::Auto => "auto",
        Identify::Spatial => "spatial",
        Identify::Delivery => "delivery",
    };
    let dimensions = match policy.dimensions {
        Dimensions::Delivered => text("delivered"),
        Dimensions::Two => Value::Integer(2),
        Dimensions::Three => Value::Integer(3),
    };
    let crs = match policy.crs {
        AssumedCrs::Code(code) => format!("EPSG:{code}"),
        AssumedCrs::Required => "required".to_owned(),
    };
    all.extend([
        ("identify", text(identify)),
        ("scope", text(&policy.scope)),
        ("precision", Value::Integer(policy.precision.into())),
        ("precision_z", Value::Integer(policy.precision_z.into())),
        ("dimensions", dimensions),
        ("lines", text(if policy.lines == Lines::Directed { "directed" } else { "undirected" })),
        ("parts", text(if policy.parts == Parts::Sorted { "sorted" } else { "ordered" })),
        ("shape", text(policy.shape.name())),
        ("crs", text(&crs)),
        ("approximate_crs", policy.approximate_crs.into()),
        ("close_rings", policy.close_rings.into()),
        ("unicode", text(if policy.unicode == Unicode::Exact { "exact" } else { "nfc" })),
    ]);
    if policy.key_secret.is_some() {
        all.push(("key_secret", secret(&source.key_secret_shown)));
    }
    all.push(layout(&source.preset));
    all.extend(source.fetch.as_ref().map(|settings| ("fetch", fetch(settings))));
    all.extend(policy.feature.as_ref().map(|pointer| ("feature", text(pointer.as_str()))));
    all.extend(accept(source).map(|accept| ("accept", accept)));
    all.extend([
        (
            "invalid",
            text(match source.invalid {
                Invalid::Reject => "reject",
                Invalid::Dead => "dead",
                Invalid::Repair => "repair",
            }),
        ),
        ("order", text(if source.ordered { "entity" } else { "none" })),
        ("fresh_status", Value::Integer(source.fresh_status.into())),
        ("ack_within", span(source.ack_within)),
        ("body_max", size(source.body_bytes_max)),
        ("cache", source.cache.into()),
        ("on_store_down", text(if source.on_store_down == OnStoreDown::Spill { "spill" } else { "refuse" })),
    ]);
    all.extend(source.near.as_ref().map(|near| ("near", super::near::saved(near))));
    all.extend(source.redelivery.map(|redelivery| ("redelivery", span(redelivery))));
    all.extend(source.previous.as_deref().map(|previous| ("previous", path(previous))));
    all.push(("sink", list(source.sinks.iter().map(|sink| text(sink)))));
    all
}

fn delete(deletion: &Deletion) -> Value {
    let equals = match &deletion.equals {
        Property::Boolean(boolean) => Value::Boolean(*boolean),
        Property::Integer(integer) => Value::Integer(*integer),
        Property::Real(real) => Value::Float(*real),
        // A policy has no others.
        Property::Text(found) | Property::Json(found) => text(found),
        Property::Null => text(""),
    };
    table([("at", text(deletion.at.as_str())), ("equals", equals)])
}

fn layout(preset: &Preset) -> (&'static str, Value) {
    let Preset::Map(map) = preset else { return ("preset", text(preset.name())) };
    let pointer = |name, pointer: &Pointer| (name, text(pointer.as_str()));
    let mut parts: Vec<_> = map.items.iter().map(|items| pointer("items", items)).collect();
    match &map.place {
        MapPlace::Point { lon, lat } => parts.extend([pointer("lon", lon), pointer("lat", lat)]),
        MapPlace::Wkt(wkt) => parts.push(pointer("wkt", wkt)),
        MapPlace::Wkb(wkb) => parts.push(pointer("wkb", wkb)),
    }
    parts.extend(map.id.iter().map(|id| pointer("id", id)));
    parts.extend(map.properties.iter().map(|properties| pointer("properties", properties)));
    ("map", table(parts))
}

fn fetch(settings: &FetchSettings) -> Value {
    let options = &settings.options;
    let texts = |texts: &[String]| list(texts.iter().map(|one| text(one)));
    let token = options.token.as_ref().map(|_| ("token", secret(&settings.token_shown)));
    let all = [
        ("hosts", texts(&options.hosts)),
        ("allow", texts(&options.allow)),
        ("body_max", size(options.bytes_max)),
        ("timeout", span(options.timeout)),
        ("retry", retry(&settings.retry)),
    ];
    table(all.into_iter().chain(token))
}

fn retry(retry: &Retry) -> Value {
    table([
        ("base", span(retry.base)),
        ("cap", span(retry.cap)),
        ("attempts", Value::Integer(retry.attempts.into())),
        ("give_up_after", span(retry.give_up_after)),
    ])
}

fn accept(source: &SourceSettings) -> Option<Value> {
    let accept = &source.policy.accept;
    let mut parts = Vec::new();
    parts.extend(accept.types.as_ref().map(|types| ("types", list(types.iter().map(|name| text(name))))));
    parts.extend(accept.bounds.map(|bounds| ("bounds", list(bounds.map(Value::Float)))));
    parts.extend(source.schema.as_deref().map(|schema| ("schema", path(schema))));
    (!parts.is_empty()).then(|| table(parts))
}

fn field_list(fields: &[Field]) -> Value {
    list(fields.iter().map(|field| {
        if !field.optional && field.decimals.is_none() {
            return text(field.at.as_str());
        }
        let decimals = field.decimals.map(|decimals| ("decimals", Value::Integer(decimals.into())));
        table([("at", text(field.at.as_str())), ("optional", field.optional.into())].into_iter().chain(decimals))
    }))
}

fn verify(verify: &VerifySettings) -> Value {
    let mut parts = vec![("scheme", text(verify.scheme_word())), ("secret", secrets(&verify.secrets))];
    match &verify.scheme {
        Scheme::Basic { user } => parts.push(("user", text(user))),
        Scheme::Hmac(settings) => parts.extend(hmac(settings)),
        _ => {}
    }
    table(parts)
}

fn hmac(hmac: &HmacScheme) -> impl Iterator<Item = (&'static str, Value)> {
    let signed = hmac.signed.as_ref().map(|signed| ("signed", text(signed)));
    let timestamp = hmac.timestamp_header.as_ref().map(|header| ("timestamp_header", text(header)));
    [
        ("header", text(&hmac.header)),
        ("hash", text(verify::hash_word(hmac.hash))),
        ("encoding", text(verify::encoding_word(hmac.encoding))),
        ("prefix", text(&hmac.prefix)),
        ("tolerance", span(hmac.tolerance)),
    ]
    .into_iter()
    .chain(signed)
    .chain(timestamp)
}

fn secrets(secrets: &[LiveSecretSettings]) -> Value {
    if let [LiveSecretSettings { live, shown }] = secrets
        && live.until.is_none()
    {
        return secret(shown);
    }
    list(secrets.iter().map(|settings| {
        let until = settings.live.until.map(|until| ("until", text(&until.to_string())));
        table([("secret", secret(&settings.shown))].into_iter().chain(until))
    }))
}

fn sink_settings(name: &str, sink: &SinkSettings) -> Vec<(&'static str, Value)> {
    let options = &sink.options;
    let columns = match &options.columns {
        Columns::Auto { max } => table([("max", count(*max))]),
        Columns::Declared(columns) => {
            table(columns.iter().map(|(column, pointer)| (column.as_str(), text(pointer.as_str()))))
        }
    };
    let mut all = vec![
        ("url", text(&sink.url.to_string())),
        ("mode", text(if options.mode == Mode::Append { "append" } else { "upsert" })),
        ("columns", columns),
        ("crs", text(&format!("EPSG:{}", options.crs))),
        ("approximate_crs", options.approximate_crs.into()),
        ("timeout", span(options.timeout)),
    ];
    all.extend(sink.after.as_deref().map(|after| ("after", text(after))));
    let is_database = sink.url.starts_with("postgres");
    if is_database {
        all.push(("isolation", text(&options.isolation.as_str().replace(' ', "-"))));
    }
    // Only what has layers is told which.
    let layer = options.layer.as_deref().or((is_database || sink.url.starts_with("gpkg:")).then_some(name));
    all.extend(layer.map(|layer| ("layer", text(layer))));
    all.extend(sink.entity.as_deref().map(|entity| ("entity", field_list(entity))));
    if options.secret.is_some() {
        all.push(("secret", secret(&sink.secret_shown)));
    }
    if !options.allow.is_empty() {
        all.push(("allow", list(options.allow.iter().map(|network| text(network)))));
    }
    all.push(("retry", retry(&sink.retry)));
    all
}

fn limits(limits: &LimitsSettings) -> Vec<(&'static str, Value)> {
    let (receiver, payload) = (&limits.receiver, &limits.payload);
    vec![
        ("connections_max", count(receiver.connections_max)),
        ("connections_per_address_max", count(receiver.connections_per_address_max)),
        ("first_byte_within", span(receiver.first_byte)),
        ("header_within", span(receiver.header)),
        ("idle_within", span(receiver.idle)),
        ("transfer_within", span(receiver.transfer)),
        ("transfer_rate_min", text(&Size(receiver.transfer_bytes_per_second_min).to_string())),
        ("transfer_grace", span(receiver.transfer_grace)),
        ("shutdown_within", span(receiver.shutdown)),
        ("header_bytes_max", size(receiver.header_bytes_max)),
        ("buffered_bytes_max", size(receiver.buffered_bytes_max)),
        ("features_max", count(limits.features_max)),
        ("bytes_max", size(payload.bytes_max)),
        ("depth_max", count(payload.depth_max)),
        ("values_max", count(payload.values_max)),
        ("members_max", count(payload.members_max)),
        ("string_bytes_max", size(payload.string_bytes_max)),
        ("number_bytes_max", size(payload.number_bytes_max)),
        ("positions_max", count(payload.positions_max)),
        ("rings_max", count(payload.rings_max)),
        ("parts_max", count(payload.parts_max)),
        ("work_max", Value::Integer(i64::try_from(payload.work_max).unwrap_or(i64::MAX))),
    ]
}

fn test_settings(test: &TestSettings) -> Vec<(&'static str, Value)> {
    let files = |files: &[PathBuf]| list(files.iter().map(|file| path(file)));
    let mut all = vec![("name", text(&test.name)), ("source", text(&test.source))];
    if !test.same.is_empty() {
        all.push(("same", files(&test.same)));
    }
    if !test.differ.is_empty() {
        all.push(("differ", files(&test.differ)));
    }
    all
}
