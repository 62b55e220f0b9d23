//! Where requests go: a URL that has been understood, or why it is refused.

use crate::error::{Error, Kind, Result};
use hyper::Uri;
use std::net::{IpAddr, Ipv6Addr};

/// The longest URL.
const URL_BYTES_MAX: usize = 2048;
/// The longest name of a host, RFC 1035 section 2.3.4.
const HOST_BYTES_MAX: usize = 253;

/// A URL in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Whether the connection is encrypted.
    pub(super) tls: bool,
    /// The name or address, without brackets.
    pub(super) host: String,
    /// The address, where the host is one.
    pub(super) literal: Option<IpAddr>,
    /// The port.
    pub(super) port: u16,
    /// As the `host` header says it.
    pub(super) authority: String,
    /// The path with its query.
    pub(super) path: String,
}

impl Target {
    /// Reads a URL. It may hold a secret path, so errors do not repeat it.
    pub(super) fn parse(sink: &str, url: &str) -> Result<Target> {
        let wrong = |why: &str| Error::new(Kind::Invalid, format!("sink {sink}: its url {why}"));
        if url.len() > URL_BYTES_MAX {
            return Err(wrong("is longer than 2048 bytes"));
        }
        if url.contains('#') {
            return Err(wrong("has a fragment (#), which is never sent"));
        }
        let uri: Uri = url.parse().map_err(|_| wrong("is no URL").hint("https://example.com/events"))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong("is neither http nor https")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("has a user or a password")
                .hint("requests are signed; set secret and let the receiver verify the signature"));
        }
        let (host, literal) = host(authority.host()).map_err(|why| wrong(&why))?;
        // Not `port_u16`, which takes a port that is too large for none.
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") if tls => 443,
            Some("") => 80,
            Some(rest) => rest
                .strip_prefix(':')
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok())
                .filter(|&port| port != 0)
                .ok_or_else(|| wrong("has a port that is not between 1 and 65535"))?,
            None => return Err(wrong("names no host")),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Target { tls, host, literal, port, authority: authority.as_str().to_owned(), path })
    }
}

/// The host without brackets, and its address where it is one.
fn host(text: &str) -> std::result::Result<(String, Option<IpAddr>), String> {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address: Ipv6Addr = inner.parse().map_err(|_| "has no address between its brackets".to_owned())?;
        return Ok((inner.to_owned(), Some(address.into())));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok((text.to_owned(), Some(address)));
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > HOST_BYTES_MAX || !name.bytes().all(plain) {
        return Err("names no host that can be resolved (international names are written xn--…)".to_owned());
    }
    // 127.1, 0x7f000001, 2130706433: resolvers read these as addresses that people do not see in them.
    let last = name.rsplit('.').next().unwrap_or_default();
    let digits = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    if last.bytes().all(|byte| byte.is_ascii_digit())
        || digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    {
        return Err("has a host that is a number but no address in its usual form".to_owned());
    }
    Ok((text.to_owned(), None))
}
