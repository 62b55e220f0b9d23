//! Who may ask: from this machine (unless others are let in), under this machine's name, not from another host's page, and
//! with the token. The token is compared in constant time.

use super::problem;
use crate::serve::{Caller, Problem};
use geonce::clock::Timestamp;
use geonce::signature::{LiveSecret, Request, Scheme, Verifier};
use geonce_key::policy::Secret;
use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use hyper::http::uri::{Authority, Uri};
use std::net::IpAddr;

/// Who may ask.
pub(crate) struct Access {
    token: Verifier,
    /// Whether others than this machine may.
    remote: bool,
    /// Whether the API has an address of its own, and is nowhere else.
    pub(crate) has_own_door: bool,
}

impl Access {
    /// Whoever has the token; from this machine, or from everywhere.
    pub(crate) fn new(token: Secret, remote: bool, has_own_door: bool) -> geonce::Result<Access> {
        let live = LiveSecret { secret: token, until: None };
        Ok(Access { token: Verifier::new(Scheme::Bearer, vec![live])?, remote, has_own_door })
    }

    /// Whether the request may be one of ours at all. A page that gives its own host's name this machine's address (DNS
    /// rebinding) is found by its name.
    pub(crate) fn admit(&self, caller: Caller, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        if !self.remote && !caller.address.is_loopback() {
            return Err(problem::remote());
        }
        let host = only(headers, &header::HOST).and_then(authority).ok_or_else(problem::host)?;
        let is_ours = |host: &Authority| self.remote || is_this_machine(host.host());
        if !is_ours(&host) || uri.authority().is_some_and(|named| !is_ours(named)) {
            return Err(problem::host());
        }
        if headers.contains_key(header::ORIGIN) {
            let origin = only(headers, &header::ORIGIN).and_then(|origin| origin.parse::<Uri>().ok());
            let same = origin.is_some_and(|origin| is_same(&origin, &host));
            return if same { Ok(()) } else { Err(problem::origin()) };
        }
        Ok(())
    }

    /// Whether the request bears the token.
    pub(crate) fn check_token(&self, head: &Parts, now: Timestamp) -> Result<(), Problem> {
        let request =
            Request { method: head.method.as_str(), path: head.uri.path(), headers: &head.headers, body: b"" };
        self.token.verify(&request, now).map(drop).map_err(|_| problem::token())
    }
}

/// The value of a header that must be there just once.
fn only<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn authority(text: &str) -> Option<Authority> {
    let authority: Authority = text.parse().ok()?;
    (!authority.as_str().contains('@') && !authority.host().is_empty()).then_some(authority)
}

/// Whether a name, or an address, is this machine's for itself.
fn is_this_machine(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = address.parse::<IpAddr>() {
        return address.to_canonical().is_loopback();
    }
    let host = host.to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

/// Whether an origin is the host that was asked.
fn is_same(origin: &Uri, host: &Authority) -> bool {
    let usual = match origin.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => return false,
    };
    let Some(named) = origin.authority().filter(|named| !named.as_str().contains('@')) else { return false };
    let port = |authority: &Authority| authority.port_u16().unwrap_or(usual);
    named.host().eq_ignore_ascii_case(host.host()) && port(named) == port(host)
}

#[cfg(test)]
mod tests {
    use super::{Access, HeaderMap, Secret, Uri};
    use crate::serve::{Caller, Door};
    use hyper::header::{HOST, HeaderValue, ORIGIN};

    fn admitted(remote: bool, address: &str, host: &str, origin: Option<&str>) -> Result<(), String> {
        let access = Access::new(Secret::new("a".repeat(20)), remote, false).unwrap();
        let caller = Caller { address: address.parse().unwrap(), door: Door::Senders };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        let uri = Uri::from_static("/api/v1/status");
        access.admit(caller, &uri, &headers).map_err(|problem| problem.code().to_owned())
    }

    #[test]
    fn only_this_machine_may_ask_and_only_by_its_own_name() {
        for host in ["localhost", "LOCALHOST:8787", "127.0.0.1:1", "127.9.9.9", "[::1]:8787", "a.localhost"] {
            assert_eq!(admitted(false, "127.0.0.1", host, None), Ok(()), "{host}");
            assert_eq!(admitted(false, "::1", host, None), Ok(()), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.nip.io", "notlocalhost", "x@localhost"]
        {
            assert_eq!(admitted(false, "127.0.0.1", host, None), Err("api_host".to_owned()), "{host}");
        }
        assert_eq!(admitted(false, "192.0.2.1", "localhost", None), Err("api_remote".to_owned()));
        assert_eq!(admitted(true, "192.0.2.1", "gateway.example", None), Ok(()));
    }

    #[test]
    fn pages_of_other_hosts_may_not_ask() {
        for (host, origin, ok) in [
            ("localhost:8787", "http://localhost:8787", true),
            ("localhost", "http://localhost:80", true),
            ("LocalHost:80", "http://localhost", true),
            ("localhost:8787", "http://localhost", false),
            ("localhost:8787", "http://127.0.0.1:8787", false),
            ("localhost:8787", "https://evil.example", false),
            ("localhost:8787", "null", false),
            ("localhost:8787", "file://", false),
            ("localhost:8787", "http://x@localhost:8787", false),
        ] {
            assert_eq!(admitted(false, "127.0.0.1", host, Some(origin)).is_ok(), ok, "{host} {origin}");
        }
        assert_eq!(admitted(true, "192.0.2.1", "gateway.example", Some("https://gateway.example")), Ok(()));
        let other = admitted(true, "192.0.2.1", "gateway.example", Some("https://evil.example"));
        assert_eq!(other, Err("api_origin".to_owned()));
    }
}
