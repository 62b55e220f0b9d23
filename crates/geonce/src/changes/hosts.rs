//! Which hosts may be asked: those that the configuration lists, over https unless it says http.

use crate::error::{Error, Kind, Result};
use crate::event::{Cause, Class};
use url::Url;

/// The most hosts that can be listed.
const HOSTS_MAX: usize = 64;

/// The hosts that may be asked.
#[derive(Clone, Debug)]
pub(super) struct Hosts(Vec<Origin>);

/// Scheme, host and port.
type Origin = (String, String, u16);

impl Hosts {
    /// Reads a list such as `["services.arcgis.com", "gis.example:6443", "http://127.0.0.1:6080"]`.
    pub(super) fn new(whose: &str, hosts: &[String]) -> Result<Hosts> {
        let wrong = |why: &str| {
            Error::new(Kind::Invalid, format!("{whose}: hosts: {why}")).hint("hosts = [\"services.arcgis.com\"]")
        };
        if hosts.is_empty() {
            return Err(wrong("no host is listed, and none other is asked"));
        }
        if hosts.len() > HOSTS_MAX {
            return Err(wrong(&format!("more than {HOSTS_MAX} hosts")));
        }
        let read = |text: &String| {
            let with_scheme = if text.contains("://") { text.clone() } else { format!("https://{text}") };
            let plain = |url: &Url| {
                let bare = url.username().is_empty() && url.password().is_none();
                bare && url.path() == "/" && url.query().is_none() && url.fragment().is_none()
            };
            let url = Url::parse(&with_scheme).ok().filter(plain);
            url.and_then(|url| origin(&url)).ok_or_else(|| wrong(&format!("{text:?} is no host, or more than one")))
        };
        hosts.iter().map(read).collect::<Result<_>>().map(Hosts)
    }

    /// Whether an address may be asked; if not, why.
    pub(super) fn judge(&self, url: &Url, what: &str) -> std::result::Result<(), Cause> {
        match origin(url) {
            Some(origin) if self.0.contains(&origin) => Ok(()),
            Some((scheme, host, port)) => {
                let message = format!("{what} leads to {scheme}://{host}:{port}, which fetch.hosts does not list");
                Err(Cause::new(Class::Permission, "fetch_host", message))
            }
            None => {
                let message = format!("{what} is neither http nor https, or names no host");
                Err(Cause::new(Class::Permission, "fetch_host", message))
            }
        }
    }

    /// Those that are asked without encryption.
    pub(super) fn unencrypted(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(scheme, ..)| scheme == "http").map(|(_, host, _)| host.as_str())
    }
}

fn origin(url: &Url) -> Option<Origin> {
    let scheme = url.scheme();
    let port = url.port_or_known_default()?;
    matches!(scheme, "http" | "https").then_some(())?;
    Some((scheme.to_owned(), url.host_str()?.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::Hosts;
    use url::Url;

    fn hosts(list: &[&str]) -> crate::Result<Hosts> {
        Hosts::new("source a", &list.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn only_listed_hosts_are_asked_and_only_as_they_are_listed() {
        let hosts = hosts(&["services.arcgis.com", "GIS.example:6443", "http://plain.example", "[::1]:8443"]).unwrap();
        let may = |url: &str| hosts.judge(&Url::parse(url).unwrap(), "it").is_ok();
        for listed in [
            "https://services.arcgis.com/a?b",
            "https://SERVICES.arcgis.com:443/",
            "https://gis.example:6443/x",
            "http://plain.example/",
            "https://[::1]:8443/",
        ] {
            assert!(may(listed), "{listed}");
        }
        for other in [
            "http://services.arcgis.com/",
            "https://services.arcgis.com:444/",
            "https://services.arcgis.com./",
            "https://services.arcgis.com.evil.example/",
            "https://services.arcgis.com@evil.example/",
            "https://evil.example/?services.arcgis.com",
            "https://gis.example/",
            "https://plain.example/",
            "http://plain.example:8080/",
            "ftp://services.arcgis.com/",
            "file:///etc/passwd",
        ] {
            assert!(!may(other), "{other}");
        }
    }

    #[test]
    fn a_list_that_is_no_list_of_hosts_is_refused() {
        for wrong in
            [&[][..], &[""], &["https://a/b"], &["a/b"], &["u@a"], &["ftp://a"], &["a?b"], &["a b"], &["https://"]]
        {
            let error = hosts(wrong).expect_err(&format!("{wrong:?}"));
            assert!(error.hint_text().is_some() && error.to_string().starts_with("source a: hosts: "), "{error}");
        }
        assert!(hosts(&["a"; 65]).is_err());
    }
}
