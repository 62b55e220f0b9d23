//! Addresses of Redis: which servers, how to find the primary among them, and what else the address says.

use crate::error::{Error, Kind, Result};
use std::time::Duration;

/// The port where an address names none; Sentinels have one of their own.
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;
/// Servers that one address may name.
const HOSTS_MAX: usize = 64;
/// The longest prefix of keys.
const PREFIX_BYTES_MAX: usize = 64;
/// How long a request may go unanswered, unless the address says `timeout=`.
const RESPONSE_MAX: Duration = Duration::from_secs(2);

/// Host and port of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// How the primary is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finder {
    /// It is the one server that is named.
    Alone,
    /// Sentinels know it by this name.
    Sentinel(String),
    /// The nodes of a Cluster know which of them holds a slot.
    Cluster,
}

/// A user and their password.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// What an address says.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) finder: Finder,
    /// The server, the Sentinels, or some nodes of the Cluster.
    pub(crate) hosts: Vec<Node>,
    pub(crate) credentials: Credentials,
    /// What Sentinels ask for, which is not what servers ask for.
    pub(crate) sentinel_credentials: Credentials,
    pub(crate) database: i64,
    pub(crate) tls: bool,
    /// A file with the certificates to trust instead of the system's.
    pub(crate) root: Option<String>,
    /// What our keys begin with.
    pub(crate) prefix: String,
    pub(crate) response_max: Duration,
    shown: String,
}

impl Address {
    /// Reads `redis://[user:password@]host[:port][/database]`, `rediss://…`, `redis+sentinel://host,host/name[/database]` or
    /// `redis+cluster://host,host`, each with `?prefix=…&timeout=milliseconds&tls=true&ca=file` and, for Sentinels,
    /// `sentinel_user=…&sentinel_password=…`.
    pub(crate) fn parse(url: &str) -> Result<Address> {
        let shown = without_password(url);
        read(url, &shown).map_err(|why| {
            Error::new(Kind::Invalid, format!("{shown} is no address of Redis: {why}"))
                .hint("redis://user:password@host:6379/0")
        })
    }

    /// The address without its secrets.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }
}

fn read(url: &str, shown: &str) -> std::result::Result<Address, String> {
    let (scheme, rest) = url.split_once("://").ok_or("it has no scheme")?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, hosts) = authority.rsplit_once('@').map_or((None, authority), |(user, hosts)| (Some(user), hosts));
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let (finder, port) = match scheme {
        "redis" | "rediss" => (Finder::Alone, PORT),
        "redis+cluster" => (Finder::Cluster, PORT),
        "redis+sentinel" => {
            let name = parts.next().ok_or("it does not say by which name the Sentinels know the primary")?;
            (Finder::Sentinel(decoded(name)?), SENTINEL_PORT)
        }
        other => return Err(format!("{other} is unknown")),
    };
    let database = parts.next().map_or(Ok(0), |text| text.parse().map_err(|_| format!("{text:?} is no database")))?;
    if parts.next().is_some() || database < 0 || (finder == Finder::Cluster && database != 0) {
        return Err(format!("{path:?} names no database"));
    }
    let hosts: Vec<Node> = hosts.split(',').map(|host| node(host, port)).collect::<std::result::Result<_, _>>()?;
    if hosts.len() > HOSTS_MAX || (finder == Finder::Alone && hosts.len() > 1) {
        return Err("it names too many servers".to_owned());
    }
    let mut address = Address {
        finder,
        hosts,
        credentials: credentials(user.unwrap_or_default())?,
        sentinel_credentials: Credentials::default(),
        database,
        tls: scheme == "rediss",
        root: None,
        prefix: "geonce".to_owned(),
        response_max: RESPONSE_MAX,
        shown: shown.to_owned(),
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        set(&mut address, name, decoded(value)?)?;
    }
    Ok(address)
}

/// Takes over one parameter.
fn set(address: &mut Address, name: &str, value: String) -> std::result::Result<(), String> {
    match (name, value.as_str()) {
        ("prefix", text) => {
            if !is_prefix(text) {
                return Err("a prefix is made of up to 64 letters, digits, and - _ . :".to_owned());
            }
            address.prefix = value;
        }
        ("timeout", text) => {
            let millis = text.parse().ok().filter(|millis| (1..=60_000).contains(millis));
            address.response_max = Duration::from_millis(millis.ok_or("timeout= is in milliseconds, up to 60000")?);
        }
        ("tls", "true") => address.tls = true,
        ("tls", "false") if !address.tls => {}
        ("ca", _) => address.root = Some(value),
        ("sentinel_user", _) => address.sentinel_credentials.user = Some(value),
        ("sentinel_password", _) => address.sentinel_credentials.password = Some(value),
        // The value may be a secret with a slip in its name.
        _ => return Err(format!("the parameter {name:?}, or its value, is unknown")),
    }
    Ok(())
}

/// Whether keys may begin with it.
pub(crate) fn is_prefix(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    !text.is_empty() && text.len() <= PREFIX_BYTES_MAX && text.chars().all(fits)
}

fn node(text: &str, port: u16) -> std::result::Result<Node, String> {
    let (host, rest) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((host, rest)) => (host, rest),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match rest.strip_prefix(':') {
        Some(number) => number.parse().map_err(|_| format!("{number:?} is no port"))?,
        None if rest.is_empty() => port,
        None => return Err(format!("{text:?} is no host")),
    };
    if host.is_empty() || host.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("a host is missing".to_owned());
    }
    Ok(Node { host: host.to_owned(), port })
}

fn credentials(text: &str) -> std::result::Result<Credentials, String> {
    let (user, password) = text.split_once(':').map_or((text, None), |(user, password)| (user, Some(password)));
    let user = if user.is_empty() { None } else { Some(decoded(user)?) };
    Ok(Credentials { user, password: password.map(decoded).transpose()? })
}

/// Text in which `%41` stands for `A`.
fn decoded(text: &str) -> std::result::Result<String, String> {
    let wrong = || "a % is not followed by two hexadecimal digits, or what they mean is no text".to_owned();
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()).ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "the address".to_owned() };
    // The parameters may hold a password too.
    let rest = rest.split('?').next().unwrap_or_default();
    let Some((user, rest)) = rest.rsplit_once('@') else { return format!("{scheme}://{rest}") };
    match user.split(':').next() {
        Some(user) if !user.is_empty() => format!("{scheme}://{user}@{rest}"),
        _ => format!("{scheme}://{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, Credentials, Finder, Node};

    fn node(host: &str, port: u16) -> Node {
        Node { host: host.to_owned(), port }
    }

    #[test]
    fn addresses_are_read() {
        let address =
            Address::parse("rediss://me:p%40ss@cache.example/3?prefix=a:b&timeout=250&ca=/etc/ca.pem").unwrap();
        assert_eq!((address.finder.clone(), address.hosts.clone()), (Finder::Alone, vec![node("cache.example", 6379)]));
        let expected = Credentials { user: Some("me".to_owned()), password: Some("p@ss".to_owned()) };
        assert_eq!((&address.credentials, address.database, address.tls), (&expected, 3, true));
        assert_eq!((address.prefix.as_str(), address.response_max.as_millis()), ("a:b", 250));
        let address = Address::parse("redis+sentinel://:x@s1,[::1]:5/main/2?tls=true&sentinel_password=y").unwrap();
        assert_eq!(address.finder, Finder::Sentinel("main".to_owned()));
        assert_eq!(address.hosts, [node("s1", 26_379), node("::1", 5)]);
        assert_eq!(
            (address.database, address.tls, address.sentinel_credentials.password.as_deref()),
            (2, true, Some("y"))
        );
        let address = Address::parse("redis+cluster://a:1,b:2").unwrap();
        assert_eq!((address.finder, address.hosts), (Finder::Cluster, vec![node("a", 1), node("b", 2)]));
    }

    #[test]
    fn what_is_no_address_is_refused_without_showing_secrets() {
        for url in [
            "redis:host",
            "redis://",
            "redis://:geheim@",
            "redis://u:geheim@host:x",
            "redis://u:geheim@a,b",
            "redis://u:geheim@host/one",
            "redis://u:geheim@host/-1",
            "redis://u:geheim@host/0/1",
            "redis://u:geheim%@host",
            "redis://host?pasword=geheim",
            "redis://host?prefix=",
            "redis://host?prefix={a}",
            "redis://host?timeout=0",
            "redis+sentinel://u:geheim@host",
            "redis+cluster://u:geheim@host/1",
        ] {
            let refused = Address::parse(url).unwrap_err();
            assert!(!refused.to_string().contains("geheim"), "{refused}");
            assert!(refused.hint_text().is_some());
        }
        let address = Address::parse("redis://me:geheim@host:1/0?prefix=x").unwrap();
        assert_eq!(address.shown(), "redis://me@host:1/0");
        assert!(!format!("{address:?}").contains("geheim"));
    }
}
