//! Addresses of sources: understood, shown without secrets, and in the form that keys are made of.
//!
//! An address never holds a user or a password: they are taken out when it is read, and sent as a header.

use crate::error::{Error, Kind, Result};
use base64::Engine as _;
use std::fmt;
use url::{Position, Url, form_urlencoded};

/// The longest address.
pub(super) const ADDRESS_BYTES_MAX: usize = 8 << 10;
/// The longest part of an address that is shown.
const SHOWN_CHARS_MAX: usize = 400;

/// Names of query parameters whose values are not shown. Hiding too much does no harm.
const HIDDEN: &[&str] = &[
    "access_token",
    "api-key",
    "api_key",
    "apikey",
    "app_code",
    "auth",
    "authkey",
    "client_secret",
    "code",
    "credential",
    "jwt",
    "key",
    "password",
    "pwd",
    "secret",
    "sessionid",
    "sig",
    "signature",
    "subscription-key",
    "token",
];
/// Beginnings of such names: signed addresses of object stores.
const HIDDEN_PREFIXES: &[&str] = &["x-amz-", "x-goog-"];
/// Names of query parameters that are no part of a key: credentials by their own standards (RFC 6750 section 2.3, signed
/// addresses of object stores). Any other may select the data, and two addresses must then have two keys.
const UNKEYED: &[&str] = &["access_token"];

/// The address of a source or of a page of it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address(Url);

/// The value of an `authorization` header for the user and password of an address.
pub(super) type Basic = String;

impl Address {
    /// Reads what a user wrote.
    pub(super) fn parse(text: &str) -> Result<(Address, Option<Basic>)> {
        // What was written may hold a password, so errors do not repeat it.
        let wrong = |why: &str| Error::new(Kind::Invalid, format!("the address of the source {why}"));
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(wrong(&format!("is longer than {ADDRESS_BYTES_MAX} bytes")));
        }
        let url = Url::parse(text.trim())
            .map_err(|error| wrong("is no URL").because(error).hint("https://example.com/parcels.gpkg"))?;
        Address::checked(url).ok_or_else(|| wrong("is neither http nor https, or names no host"))
    }

    /// Reads what a server wrote, relative to this address. Its user and password, if it has any, are dropped.
    pub(super) fn join(&self, reference: &str) -> Option<Address> {
        let url = self.0.join(reference.trim()).ok().filter(|url| url.as_str().len() <= ADDRESS_BYTES_MAX)?;
        Some(Address::checked(url)?.0)
    }

    fn checked(mut url: Url) -> Option<(Address, Option<Basic>)> {
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return None;
        }
        let basic = (!url.username().is_empty() || url.password().is_some()).then(|| {
            let mut pair = decoded(url.username());
            pair.push(b':');
            pair.extend(decoded(url.password().unwrap_or_default()));
            format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
        });
        url.set_username("").ok()?;
        url.set_password(None).ok()?;
        url.set_fragment(None);
        Some((Address(url), basic))
    }

    /// Whether connections to it are encrypted.
    pub(super) fn tls(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The host, an IPv6 address in brackets.
    pub(super) fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// The port.
    pub(super) fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or(80)
    }

    /// As the `host` header says it.
    pub(super) fn authority(&self) -> &str {
        &self.0[Position::BeforeHost..Position::AfterPort]
    }

    /// Path and query, as a request says them.
    pub(super) fn target(&self) -> &str {
        &self.0[Position::BeforePath..Position::AfterQuery]
    }

    /// The path.
    pub(super) fn path(&self) -> &str {
        self.0.path()
    }

    /// The last part of the path, decoded; empty if there is none.
    pub(super) fn last_segment(&self) -> String {
        let last = self.0.path_segments().and_then(|mut segments| segments.rfind(|one| !one.is_empty()));
        String::from_utf8_lossy(&decoded(last.unwrap_or_default())).into_owned()
    }

    /// Whether what a user gave for `origin` may be sent here too: the same scheme, host and port, or the same host over
    /// TLS instead of without.
    pub(super) fn is_trusted_with_secrets_of(&self, origin: &Address) -> bool {
        let same = (self.tls(), self.port()) == (origin.tls(), origin.port());
        let encrypted_instead = self.tls() && self.port() == 443 && !origin.tls() && origin.port() == 80;
        self.host() == origin.host() && (same || encrypted_instead)
    }

    /// The address of a next page as it is to be asked, where this one told it. Servers behind a proxy often do not know
    /// that they are reached over TLS, and write http; they are asked as before. Any other step from TLS to none is refused.
    pub(super) fn next_page(&self, mut next: Address) -> Option<Address> {
        if !self.tls() || next.tls() {
            return Some(next);
        }
        if self.host() != next.host() || ![80, self.port()].contains(&next.port()) {
            return None;
        }
        next.0.set_scheme("https").ok()?;
        next.0.set_port(self.0.port()).ok()?;
        Some(next)
    }

    /// The value of a query parameter.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        self.0.query_pairs().find(|(one, _)| one.eq_ignore_ascii_case(name)).map(|(_, value)| value.into_owned())
    }

    /// The same address with these query parameters instead of those of the same names; without those that have no value.
    pub(super) fn with(&self, parameters: &[(&str, Option<&str>)]) -> Address {
        let replaced = |pair: &&str| !parameters.iter().any(|(name, _)| named(pair).eq_ignore_ascii_case(name));
        let mut pairs: Vec<String> = self.pairs().filter(replaced).map(str::to_owned).collect();
        let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        pairs.extend(
            parameters.iter().filter_map(|(name, value)| Some(format!("{}={}", encoded(name), encoded((*value)?)))),
        );
        self.with_query(&pairs)
    }

    /// The same address with another path.
    pub(super) fn at_path(&self, path: &str) -> Address {
        let mut url = self.0.clone();
        url.set_path(path);
        Address(url)
    }

    /// The same address with another path and without a query.
    pub(super) fn with_path(&self, path: &str) -> Address {
        self.at_path(path).with_query(&[])
    }

    /// As keys are made of it: without credentials, and with its query in the order of names. Values of one name stay in
    /// their order, which may mean something.
    pub(super) fn for_key(&self, secret_parameters: &[String]) -> String {
        let kept = |pair: &&str| {
            let name = named(pair).to_ascii_lowercase();
            !UNKEYED.contains(&name.as_str())
                && !HIDDEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                && !secret_parameters.iter().any(|secret| secret.eq_ignore_ascii_case(&name))
        };
        let mut pairs: Vec<String> = self.pairs().filter(kept).map(str::to_owned).collect();
        pairs.sort_by_key(|pair| named(pair));
        self.with_query(&pairs).0.into()
    }

    /// As people and logs see it.
    pub(super) fn shown(&self, secret_parameters: &[String]) -> String {
        let pairs: Vec<String> = self
            .pairs()
            .map(|pair| match pair.split_once('=') {
                Some((name, _)) if is_hidden(&named(pair), secret_parameters) => format!("{name}=…"),
                _ => pair.to_owned(),
            })
            .collect();
        let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
        let all = format!("{}{query}", &self.0[..Position::AfterPath]);
        if all.chars().count() <= SHOWN_CHARS_MAX {
            return all;
        }
        all.chars().take(SHOWN_CHARS_MAX).chain(['…']).collect()
    }

    /// The values that must not be shown wherever they turn up.
    pub(super) fn secrets(&self, secret_parameters: &[String]) -> Vec<String> {
        let pairs = self.0.query_pairs().filter(|(name, _)| is_hidden(name, secret_parameters));
        pairs.map(|(_, value)| value.into_owned()).collect()
    }

    fn pairs(&self) -> impl Iterator<Item = &str> {
        self.0.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty())
    }

    fn with_query(&self, pairs: &[String]) -> Address {
        let mut url = self.0.clone();
        url.set_query(if pairs.is_empty() { None } else { Some(pairs.join("&")) }.as_deref());
        Address(url)
    }
}

/// What is written of an address in a debugger is what people may see.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown(&[]))
    }
}

/// The name of a parameter, decoded.
fn named(pair: &str) -> String {
    form_urlencoded::parse(pair.as_bytes()).next().map_or_else(String::new, |(name, _)| name.into_owned())
}

fn is_hidden(name: &str, secret_parameters: &[String]) -> bool {
    let name = name.to_ascii_lowercase();
    HIDDEN.contains(&name.as_str())
        || HIDDEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || secret_parameters.iter().any(|secret| secret.eq_ignore_ascii_case(&name))
}

/// What percent signs stand for. One that stands for nothing stays.
pub(super) fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let value = digits.filter(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match value.and_then(|two| u8::from_str_radix(two, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => (bytes.push(byte), rest = &tail[2..]).1,
            None => (bytes.push(*first), rest = tail).1,
        }
    }
    bytes
}
