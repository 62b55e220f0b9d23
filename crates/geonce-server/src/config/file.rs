//! `geonce.toml` as it is written: names, types and their descriptions. The JSON Schema is made from these.
//!
//! Nothing is judged here beyond names and types; what a value means is said where it becomes a setting.

pub(super) use super::api::Api;
use super::fetch::Fetch;
use super::human::{Size, Span};
use super::near::NearValue;
use super::version::Delete;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// A setting of a later release: known by name, so that it can be refused by name.
pub(super) type NotYet = Option<IgnoredAny>;

/// The configuration of geonce. Every setting has a default.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "geonce.toml")]
pub(super) struct File {
    /// Where events are kept.
    pub(super) store: Store,
    /// A cache before the store, for duplicates of events that are done.
    pub(super) cache: Option<Cache>,
    /// Where events come in, by name: `POST /in/NAME`.
    pub(super) source: BTreeMap<String, Source>,
    /// Where events go, by name.
    pub(super) sink: BTreeMap<String, Sink>,
    /// Bounds on requests and payloads.
    pub(super) limits: Limits,
    /// What is written to the log.
    pub(super) log: Log,
    /// Who may look into events, and have something done about them: `/api/v1`.
    pub(super) api: Api,
    /// Settings of the administration interface, which this release does not have.
    pub(super) admin: Option<Admin>,
    /// Pairs of payloads that `geonce check` compares.
    pub(super) test: Vec<Test>,
}

/// Where events are kept.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Store {
    /// `sqlite:FILE`, relative to the data folder, `postgresql://…`, `redis://…`, `rediss://…`, `redis+sentinel://…` or
    /// `redis+cluster://…` [default: sqlite:geonce.db].
    pub(super) url: Option<String>,
    /// How long the key of a done event is remembered [default: 7d].
    pub(super) window: Option<Span>,
    /// How long a dead event is kept [default: 30d].
    pub(super) dead_retention: Option<Span>,
    /// Whether payloads are kept once their event is done; explain needs them [default: true].
    pub(super) keep_payload: Option<bool>,
    /// The sentence that accepts a server that may lose what it has acknowledged: `acknowledged events may be lost`.
    pub(super) accept_loss: Option<String>,
    /// How long what a gateway holds is its own: after a crash it is delivered by another one, or after the restart [default: 1m].
    pub(super) lease: Option<Span>,
    /// What the journal may use that keeps events while the store is down [default: 1GB].
    pub(super) spill_max: Option<Size>,
}

/// A cache before the store.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cache {
    /// `redis://…`, `rediss://…`, `redis+sentinel://HOST,HOST/NAME` or `redis+cluster://HOST,HOST`.
    pub(super) url: Option<String>,
    /// What the names of entries begin with [default: geonce].
    pub(super) prefix: Option<String>,
    /// How long Redis may take before the store is asked instead [default: 5ms].
    pub(super) budget: Option<Span>,
    /// Events to be expected within the store's window; the filter before Redis is made for so many [default: 1000000].
    pub(super) keys: Option<usize>,
    /// Entries that are kept in the gateway itself [default: 65536].
    pub(super) recent: Option<usize>,
}

/// One way in.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Source {
    /// How requests are proved genuine.
    pub(super) verify: Option<Verify>,
    /// Accepts requests that nobody signed [default: false].
    pub(super) allow_unsigned: Option<bool>,
    /// JSON pointers of the values that tell events apart [default: the whole payload].
    pub(super) identity: Option<Vec<IdentityField>>,
    /// JSON pointers left out of the whole payload; not together with `identity`.
    pub(super) ignore: Option<Vec<String>>,
    /// JSON pointer of the event's version, or `arrival`.
    pub(super) version: Option<String>,
    /// How long before its arrival an event's version may be; an older one is stale [default: for ever].
    pub(super) lateness: Option<Span>,
    /// How a payload says that its entity is gone.
    pub(super) delete: Option<Delete>,
    /// Whose id names an event: the delivery's where there is one, always the payload's, or always the delivery's.
    pub(super) identify: Option<IdentifyWord>,
    /// The name within which keys are unique [default: the source's name].
    pub(super) scope: Option<String>,
    /// Decimals of a degree, 0 to 9 [default: 7].
    pub(super) precision: Option<u8>,
    /// Decimals of the third number, 0 to 9 [default: 3].
    pub(super) precision_z: Option<u8>,
    /// What becomes of a third number: "delivered", 2 or 3 [default: delivered].
    pub(super) dimensions: Option<DimensionsValue>,
    /// Whether a line equals its reverse [default: directed].
    pub(super) lines: Option<LinesWord>,
    /// Whether the order of parts counts [default: sorted].
    pub(super) parts: Option<PartsWord>,
    /// How much of a geometry's form counts; other than exact only with `dimensions = 2` [default: exact].
    pub(super) shape: Option<ShapeWord>,
    /// Coordinate system assumed where none is declared, or `required` [default: EPSG:4326].
    pub(super) crs: Option<String>,
    /// Accepts coordinate systems whose operation to WGS 84 is approximate [default: false].
    pub(super) approximate_crs: Option<bool>,
    /// Closes unclosed rings instead of refusing them [default: false].
    pub(super) close_rings: Option<bool>,
    /// Turns keys into an HMAC that others cannot compute.
    pub(super) key_secret: Option<String>,
    /// JSON pointer of the Feature, where payloads are envelopes.
    pub(super) feature: Option<String>,
    /// How text of the identity is compared [default: exact].
    pub(super) unicode: Option<UnicodeWord>,
    /// Whose requests these are, and so how they are laid out [default: geojson].
    pub(super) preset: Option<PresetWord>,
    /// Where the parts of a Feature are, for senders that no preset knows.
    pub(super) map: Option<Map>,
    /// Fetches the changes that a sender only announces.
    pub(super) fetch: Option<Fetch>,
    /// Which payloads are taken at all.
    pub(super) accept: Option<Accept>,
    /// What becomes of geometries that are not valid: refused, kept as dead to be repaired, or repaired at once [default: reject].
    pub(super) invalid: Option<InvalidWord>,
    /// How long the sender keeps trying; `geonce check` compares it with the store's window.
    pub(super) redelivery: Option<Span>,
    /// The HTTP status of a fresh event, 202 or 200 [default: 202].
    pub(super) fresh_status: Option<u16>,
    /// How long a sender waits at most before it is told to come back [default: 5s].
    pub(super) ack_within: Option<Span>,
    /// The largest body, after inflating [default: 10MB].
    pub(super) body_max: Option<Size>,
    /// Whether the cache is asked for its events [default: true].
    pub(super) cache: Option<bool>,
    /// What happens while the store does not answer: senders are told to come back, or events are kept in a journal on
    /// this machine [default: refuse].
    pub(super) on_store_down: Option<StoreDownWord>,
    /// Which events are near-duplicates, and what becomes of them: a distance, or a table.
    pub(super) near: Option<NearValue>,
    /// Whether events of one entity are delivered one after the other, lowest version first [default: none].
    pub(super) order: Option<OrderWord>,
    /// File with the policy before this one, whose keys are still recognised.
    pub(super) previous: Option<String>,
    /// The sink, or several [default: the only one].
    pub(super) sink: Option<Names>,
}

/// How requests are proved genuine. Which options apply depends on the scheme.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Verify {
    /// Whose way of signing it is.
    pub(super) scheme: SchemeWord,
    /// What the sender signs with.
    pub(super) secret: Secrets,
    /// hmac: the header with the signature.
    pub(super) header: Option<String>,
    /// hmac: the hash function [default: sha256].
    pub(super) hash: Option<HashWord>,
    /// hmac: how the signature is written [default: hex].
    pub(super) encoding: Option<EncodingWord>,
    /// hmac: text before the signature in its header, such as `sha256=`.
    pub(super) prefix: Option<String>,
    /// hmac: what is signed, with `{method}`, `{path}`, `{timestamp}`, `{header:NAME}` and `{body}` [default: {body}].
    pub(super) signed: Option<String>,
    /// hmac: the header with the time of signing, in Unix seconds.
    pub(super) timestamp_header: Option<String>,
    /// hmac: how far the time of signing may be from now [default: 5m].
    pub(super) tolerance: Option<Span>,
    /// basic: the user's name.
    pub(super) user: Option<String>,
}

/// Whose way of signing.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SchemeWord {
    StandardWebhooks,
    Svix,
    Github,
    Stripe,
    Arcgis,
    Hmac,
    Bearer,
    Basic,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum HashWord {
    Sha256,
    Sha384,
    Sha512,
    /// Weak; only where the sender knows nothing better.
    Sha1,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum EncodingWord {
    Hex,
    HexUpper,
    Base64,
    #[serde(rename = "base64url")]
    Base64Url,
}

/// One secret, or several during a rotation.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a secret is text, { file = \"…\" }, or a list of { secret = …, until = … }")]
pub(super) enum Secrets {
    One(SecretSource),
    Several(Vec<LiveSecret>),
}

/// A secret's text, or the file that holds it.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a secret is text or { file = \"…\" }")]
pub(super) enum SecretSource {
    Text(String),
    File(SecretFile),
}

/// The file that holds a secret.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretFile {
    /// Relative to the configuration file.
    pub(super) file: String,
}

/// A secret that may end.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LiveSecret {
    pub(super) secret: SecretSource,
    /// Accepted before this time (RFC 3339).
    #[schemars(with = "Option<String>")]
    pub(super) until: Option<Moment>,
}

/// A time, as text or as TOML has it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a time such as 2026-12-31T00:00:00Z")]
pub(super) enum Moment {
    Text(String),
    Toml(toml::value::Datetime),
}

/// A value that tells events apart.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a JSON pointer such as \"/properties/asset_id\", or { at, optional, decimals }")]
pub(super) enum IdentityField {
    Pointer(String),
    Table(IdentityTable),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct IdentityTable {
    /// JSON pointer of the value.
    pub(super) at: String,
    /// Whether it may be absent.
    #[serde(default)]
    pub(super) optional: bool,
    /// Decimals to which a number is rounded.
    pub(super) decimals: Option<u8>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "\"delivered\", 2 or 3")]
pub(super) enum DimensionsValue {
    Number(u8),
    Word(String),
}

/// One name, or several.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a name, or a list of names")]
pub(super) enum Names {
    One(String),
    Several(Vec<String>),
}

macro_rules! word {
    ($name:ident { $($variant:ident),+ }) => {
        #[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
        #[serde(rename_all = "lowercase")]
        pub(super) enum $name { $($variant),+ }
    };
}

word! { PresetWord { Geojson, Arcgis, Survey123, Cloudevents, Wis2, Traccar, Owntracks, Tile38, Github } }
word! { IdentifyWord { Auto, Spatial, Delivery } }
word! { LinesWord { Directed, Undirected } }
word! { PartsWord { Sorted, Ordered } }
word! { ShapeWord { Exact, Simplified, Bbox } }
word! { UnicodeWord { Exact, Nfc } }
word! { InvalidWord { Reject, Dead, Repair } }
word! { StoreDownWord { Refuse, Spill } }
word! { OrderWord { None, Entity } }
word! { ModeWord { Append, Upsert } }

/// What a transaction sees of others beside it.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum IsolationWord {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

word! { LevelWord { Error, Warn, Info, Debug, Trace } }
word! { FormatWord { Auto, Pretty, Json } }

/// Where the parts of a Feature are, as JSON pointers.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Map {
    /// A list of events; all other pointers are then within each of them.
    pub(super) items: Option<String>,
    /// The longitude.
    pub(super) lon: Option<String>,
    /// The latitude.
    pub(super) lat: Option<String>,
    /// The geometry as WKT.
    pub(super) wkt: Option<String>,
    /// The geometry as WKB, hexadecimal or base 64.
    pub(super) wkb: Option<String>,
    /// The id of the Feature.
    pub(super) id: Option<String>,
    /// Its properties, an object [default: all that is not the geometry].
    pub(super) properties: Option<String>,
}

/// Which payloads are taken at all.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Accept {
    /// Geometry types, with `null` for features without geometry.
    pub(super) types: Option<Vec<String>>,
    /// West, south, east, north in degrees.
    pub(super) bounds: Option<[f64; 4]>,
    /// File with a JSON Schema for the payload, relative to the configuration file.
    pub(super) schema: Option<String>,
}

/// One way out.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Sink {
    /// `gpkg:FILE`, `ndjson:FILE` (relative to the data folder), `postgresql://…`, `https://…` or `http://…`.
    pub(super) url: Option<String>,
    /// The sink that an event is written to first: this one is told once it has the row [default: none].
    pub(super) after: Option<String>,
    /// The layer or table [default: the sink's name].
    pub(super) layer: Option<String>,
    /// Whether every event is a row, or every entity [default: append].
    pub(super) mode: Option<ModeWord>,
    /// JSON pointers of the values that name an entity, for upsert [default: the source's identity].
    pub(super) entity: Option<Vec<IdentityField>>,
    /// Which properties become columns [default: auto].
    pub(super) columns: Option<ColumnsValue>,
    /// The coordinate system of the layer [default: EPSG:4326].
    pub(super) crs: Option<String>,
    /// Accepts coordinate operations that are approximate [default: false].
    pub(super) approximate_crs: Option<bool>,
    /// HTTP: what requests are signed with (Standard Webhooks).
    pub(super) secret: Option<SecretSource>,
    /// HTTP: private or local networks that may be called, such as `10.0.0.0/8`.
    pub(super) allow: Option<Vec<String>>,
    /// How long a write may take [default: 30s].
    pub(super) timeout: Option<Span>,
    /// When a failed write is tried again, and until when.
    pub(super) retry: Option<Retry>,
    /// PostGIS: what a transaction sees of others beside it [default: read-committed].
    pub(super) isolation: Option<IsolationWord>,
    #[schemars(skip)]
    pub(super) applied_retention: NotYet,
}

/// `"auto"`, `{ max = 32 }`, or a table from column to JSON pointer.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "\"auto\", { max = NUMBER }, or a table from column to JSON pointer")]
pub(super) enum ColumnsValue {
    Word(String),
    Max(ColumnsMax),
    Declared(BTreeMap<String, String>),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ColumnsMax {
    /// At most so many columns; the other properties share one.
    pub(super) max: usize,
}

/// When a failed write is tried again, and until when.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Retry {
    /// The longest first wait [default: 2s].
    pub(super) base: Option<Span>,
    /// The longest wait of all [default: 60s].
    pub(super) cap: Option<Span>,
    /// How many answers of the sink end an event [default: 6].
    pub(super) attempts: Option<u32>,
    /// How long a sink may be unreachable before its events are dead [default: the store's window].
    pub(super) give_up_after: Option<Span>,
}

/// Bounds on requests and payloads.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Limits {
    /// Open connections [default: 1000].
    pub(super) connections_max: Option<usize>,
    /// Open connections from one address, except this machine's own [default: 250].
    pub(super) connections_per_address_max: Option<usize>,
    /// Wait for the first byte on a new connection [default: 10s].
    pub(super) first_byte_within: Option<Span>,
    /// Time for the head of a request, from its first byte on [default: 10s].
    pub(super) header_within: Option<Span>,
    /// Time between two requests of one connection [default: 60s].
    pub(super) idle_within: Option<Span>,
    /// Time for one body or one answer, whatever its rate [default: 5m].
    pub(super) transfer_within: Option<Span>,
    /// The least rate of a body or an answer, in bytes a second [default: 1KiB].
    pub(super) transfer_rate_min: Option<Size>,
    /// What a body or an answer may take before its rate counts [default: 10s].
    pub(super) transfer_grace: Option<Span>,
    /// Time for requests in progress when the gateway stops [default: 10s].
    pub(super) shutdown_within: Option<Span>,
    /// Bytes of the head of a request [default: 32KiB].
    pub(super) header_bytes_max: Option<Size>,
    /// Bytes of all bodies that are held in memory at once [default: 32MiB].
    pub(super) buffered_bytes_max: Option<Size>,
    /// Features of one request [default: 10000].
    pub(super) features_max: Option<usize>,
    /// Bytes of one payload [default: 32MiB].
    pub(super) bytes_max: Option<Size>,
    /// Nesting of arrays and objects, at most 256 [default: 64].
    pub(super) depth_max: Option<usize>,
    /// JSON values in one payload [default: 4000000].
    pub(super) values_max: Option<usize>,
    /// Members of one JSON object [default: 100000].
    pub(super) members_max: Option<usize>,
    /// Bytes of one string [default: 1MiB].
    pub(super) string_bytes_max: Option<Size>,
    /// Characters of one number [default: 1024].
    pub(super) number_bytes_max: Option<Size>,
    /// Positions of one geometry [default: 1000000].
    pub(super) positions_max: Option<usize>,
    /// Rings and lines of one geometry [default: 200000].
    pub(super) rings_max: Option<usize>,
    /// Parts of one geometry [default: 200000].
    pub(super) parts_max: Option<usize>,
    /// Elementary steps of a geometry algorithm [default: 4000000].
    pub(super) work_max: Option<u64>,
}

/// What is written to the log.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Log {
    /// The least important line that is written [default: info].
    pub(super) level: Option<LevelWord>,
    /// For people, for machines, or by whether it goes to a terminal [default: auto].
    pub(super) format: Option<FormatWord>,
}

/// Settings of the administration interface. Accepted, and without effect in this release.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Admin {
    /// File with the administration's token.
    pub(super) token_file: Option<String>,
}

/// Payloads that `geonce check` compares.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Test {
    /// What is shown by it, in a sentence.
    pub(super) name: String,
    /// The source whose policy applies; not needed if there is just one.
    pub(super) source: Option<String>,
    /// Files that must be one event.
    #[serde(default)]
    pub(super) same: Vec<String>,
    /// Files that must all be different events.
    #[serde(default)]
    pub(super) differ: Vec<String>,
}
