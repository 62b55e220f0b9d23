//! Connections to Redis: one multiplexed connection to the primary, found anew whenever it is lost; encrypted where asked.
//!
//! The primary is the server that is named, the one that Sentinels name, or the one that holds a slot of a Cluster. Nothing
//! is repeated here: the driver's own clients for Sentinel and Cluster are not used, because one leaves finding the primary
//! again to its caller, and the other repeats commands silently.

mod address;
mod trouble;

pub(crate) use self::address::{Address, Finder, Node, is_prefix};
pub(crate) use self::trouble::{Tries, Trouble};

use self::address::Credentials;
use crate::clock::Stopwatch;
use crate::error::{Error, Kind, Result};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    RedisConnectionInfo, TlsCertificates, Value,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// How long connecting to one server may take.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// Slots of a Cluster.
const SLOTS: u16 = 16_384;

/// What a caller makes sure of before it uses a server.
pub(crate) type Check =
    Box<dyn Fn(MultiplexedConnection, Node) -> Pin<Box<dyn Future<Output = Attempt<()>> + Send>> + Send + Sync>;

/// What a fallible function here returns.
pub(crate) type Attempt<T> = std::result::Result<T, Trouble>;

/// What is listened to on the connection, and who is told of it.
pub(crate) struct Listen {
    pub(crate) channel: String,
    pub(crate) heard: Arc<dyn Fn(Heard<'_>) + Send + Sync>,
}

/// What somebody who listens is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard<'a> {
    /// Messages are heard from here on.
    Listening,
    /// A message.
    Message(&'a [u8]),
    /// The connection was lost: nothing is heard until there is another.
    Lost,
}

/// A way to the primary.
pub(crate) struct Connections {
    address: Address,
    roots: Option<Vec<u8>>,
    /// The slot of the keys that it is for; matters in a Cluster only.
    slot: u16,
    listen: Option<Listen>,
    check: Check,
    current: tokio::sync::Mutex<Current>,
}

/// The connection that is shared, if there is one.
#[derive(Default)]
struct Current {
    number: u64,
    link: Option<MultiplexedConnection>,
    /// When the primary was last looked for in vain, and why.
    failed: Option<(Stopwatch, String)>,
}

/// A connection in hand.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) link: MultiplexedConnection,
    number: u64,
}

impl Connections {
    /// Connects when a connection is first needed, to whoever is primary for keys like `key`.
    pub(crate) fn new(address: Address, key: &str, listen: Option<Listen>, check: Check) -> Result<Connections> {
        let doing = || format!("connecting to {}", address.shown());
        let roots = address.root.as_deref().map(std::fs::read).transpose();
        let roots = roots.map_err(|error| {
            Error::new(Kind::Invalid, doing()).because(error).hint("ca= names a file with certificates to trust")
        })?;
        if address.tls {
            // If another is installed already, that one will do.
            let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        }
        let slot = slot(key.as_bytes());
        Ok(Connections { address, roots, slot, listen, check, current: tokio::sync::Mutex::default() })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The connection; a new one, if there is none.
    pub(crate) async fn get(&self) -> Attempt<Connection> {
        let began = Stopwatch::start();
        let mut current = self.current.lock().await;
        if let Some(link) = &current.link {
            return Ok(Connection { link: link.clone(), number: current.number });
        }
        // Who has waited while another looked in vain does not look again: all would wait for one after the other.
        if let Some((when, why)) = &current.failed
            && when.elapsed() < began.elapsed()
        {
            return Err(Trouble::silent(why.clone()));
        }
        match self.find().await {
            Ok(link) => {
                *current = Current { number: current.number + 1, link: Some(link.clone()), failed: None };
                Ok(Connection { link, number: current.number })
            }
            Err(trouble) => {
                if let Trouble::Silent(why) = &trouble {
                    current.failed = Some((Stopwatch::start(), why.clone()));
                }
                Err(trouble)
            }
        }
    }

    /// The connection, if there is one at this moment.
    pub(crate) fn at_hand(&self) -> Option<Connection> {
        let current = self.current.try_lock().ok()?;
        let link = current.link.clone()?;
        Some(Connection { link, number: current.number })
    }

    /// Lets go of a connection that is of no more use, unless that was done already.
    pub(crate) async fn lost(&self, connection: &Connection) {
        let mut current = self.current.lock().await;
        if current.number == connection.number {
            current.link = None;
        }
    }

    /// Ends the connection.
    pub(crate) async fn close(&self) {
        self.current.lock().await.link = None;
    }

    /// Connects to the primary. Whoever is asked for it may be out of date, so each is asked until one is right.
    async fn find(&self) -> Attempt<MultiplexedConnection> {
        let mut last = Trouble::silent("the address names no server");
        for host in &self.address.hosts {
            let found = match self.named_by(host).await {
                Ok(node) => self.open(&node).await,
                Err(trouble) => Err(trouble),
            };
            match found {
                Ok(link) => return Ok(link),
                Err(trouble @ Trouble::Other(_)) => return Err(trouble),
                Err(trouble) => last = trouble,
            }
        }
        Err(last)
    }

    /// The primary as `host` knows it.
    async fn named_by(&self, host: &Node) -> Attempt<Node> {
        match &self.address.finder {
            Finder::Alone => Ok(host.clone()),
            Finder::Sentinel(name) => {
                let mut link = self.connect(host, &self.address.sentinel_credentials, 0, false).await?;
                let known: Option<(String, u16)> =
                    redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name).query_async(&mut link).await?;
                let (host, port) = known.ok_or_else(|| {
                    let text = format!("the Sentinel {host} knows no primary by the name {name:?}");
                    Trouble::silent(text)
                })?;
                Ok(Node { host, port })
            }
            Finder::Cluster => {
                let shards = self.shards_of(host).await?;
                let shard = shards.into_iter().find(|shard| (shard.first..=shard.last).contains(&self.slot));
                shard
                    .map(|shard| shard.primary)
                    .ok_or_else(|| Trouble::silent(format!("no node holds slot {}", self.slot)))
            }
        }
    }

    async fn shards_of(&self, host: &Node) -> Attempt<Vec<Shard>> {
        let mut link = self.connect(host, &self.address.credentials, 0, false).await?;
        let answer: Value = redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut link).await?;
        read_shards(answer, host)
    }

    /// Every primary: those of a Cluster are all that hold slots.
    pub(crate) async fn primaries(&self) -> Attempt<Vec<Node>> {
        let mut last = Trouble::silent("the address names no server");
        for host in &self.address.hosts {
            let found = match self.address.finder {
                Finder::Cluster => self.shards_of(host).await.map(|shards| {
                    let mut nodes: Vec<Node> = Vec::new();
                    for shard in shards {
                        if !nodes.contains(&shard.primary) {
                            nodes.push(shard.primary);
                        }
                    }
                    nodes
                }),
                _ => self.named_by(host).await.map(|node| vec![node]),
            };
            match found {
                Ok(nodes) => return Ok(nodes),
                Err(trouble) => last = trouble,
            }
        }
        Err(last)
    }

    /// A connection to one server of the address, beside the one that is shared.
    pub(crate) async fn connect_to(&self, node: &Node) -> Attempt<MultiplexedConnection> {
        self.connect(node, &self.address.credentials, self.address.database, false).await
    }

    /// Connects to a primary, and makes sure that it is one and will do.
    async fn open(&self, node: &Node) -> Attempt<MultiplexedConnection> {
        let listening = self.listen.is_some();
        let mut link = self.connect(node, &self.address.credentials, self.address.database, listening).await?;
        match redis::cmd("ROLE").query_async::<Value>(&mut link).await.map_err(Trouble::from) {
            Ok(Value::Array(parts)) => {
                if parts.first().is_some_and(|role| text(role) != "master") {
                    return Err(Trouble::silent(format!("{node} is a replica, not the primary")));
                }
            }
            // Where it may not be asked, writing will tell.
            Ok(_) => {}
            Err(trouble) if trouble.is_forbidden() => {}
            Err(trouble) => return Err(trouble),
        }
        (self.check)(link.clone(), node.clone()).await?;
        if let Some(listen) = &self.listen {
            match link.subscribe(&listen.channel).await.map_err(Trouble::from) {
                Ok(()) => (listen.heard)(Heard::Listening),
                Err(trouble) if trouble.is_forbidden() => {
                    tracing::warn!("Redis does not let us listen: polling instead");
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(link)
    }

    async fn connect(
        &self,
        node: &Node,
        credentials: &Credentials,
        database: i64,
        listening: bool,
    ) -> Attempt<MultiplexedConnection> {
        let client = self.client(node, credentials, database, listening)?;
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_response_timeout(Some(self.address.response_max));
        if let (true, Some(listen)) = (listening, &self.listen) {
            let heard = Arc::clone(&listen.heard);
            config = config.set_push_sender(move |push: PushInfo| {
                match (push.kind, push.data.last()) {
                    (PushKind::Message, Some(Value::BulkString(message))) => heard(Heard::Message(message)),
                    (PushKind::Disconnection, _) => heard(Heard::Lost),
                    _ => {}
                }
                Ok::<(), std::convert::Infallible>(())
            });
        }
        let connected = client.get_multiplexed_async_connection_with_config(&config).await;
        connected.map_err(|error| match Trouble::from(error) {
            Trouble::Silent(what) => Trouble::Silent(format!("{node}: {what}")),
            other => other,
        })
    }

    fn client(&self, node: &Node, credentials: &Credentials, database: i64, listening: bool) -> Attempt<Client> {
        // Only the newer protocol lets messages in between answers.
        let protocol = if listening { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
        let mut settings = RedisConnectionInfo::default().set_db(database).set_protocol(protocol);
        if let Some(user) = &credentials.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &credentials.password {
            settings = settings.set_password(password);
        }
        let (host, port) = (node.host.clone(), node.port);
        if !self.address.tls {
            let info = ConnectionAddr::Tcp(host, port).into_connection_info()?.set_redis_settings(settings);
            return Ok(Client::open(info)?);
        }
        let address = ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None };
        let info = address.into_connection_info()?.set_redis_settings(settings);
        Ok(Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert: self.roots.clone() })?)
    }
}

/// Slots of a Cluster and the primary that holds them.
struct Shard {
    first: u16,
    last: u16,
    primary: Node,
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    }
}

/// Reads what `CLUSTER SLOTS` says. Where a node does not know its own name, it is the one that was asked.
fn read_shards(answer: Value, asked: &Node) -> Attempt<Vec<Shard>> {
    let strange = || Trouble::told("DAMAGED the Cluster describes its slots in a way that is not known");
    let number = |value: &Value| match value {
        Value::Int(number) => u16::try_from(*number).map_err(|_| strange()),
        _ => Err(strange()),
    };
    let Value::Array(ranges) = answer else { return Err(strange()) };
    let mut shards = Vec::with_capacity(ranges.len());
    for range in ranges {
        let Value::Array(parts) = range else { return Err(strange()) };
        let [first, last, Value::Array(primary), ..] = parts.as_slice() else { return Err(strange()) };
        let [host, port, ..] = primary.as_slice() else { return Err(strange()) };
        let named = text(host);
        let host = if named.is_empty() || named == "?" { asked.host.clone() } else { named };
        shards.push(Shard { first: number(first)?, last: number(last)?, primary: Node { host, port: number(port)? } });
    }
    Ok(shards)
}

/// The slot of a key: of what is between its first braces, where there is something.
fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let inside = &key[open + 1..];
        let close = inside.iter().position(|&byte| byte == b'}').filter(|&length| length > 0)?;
        Some(&inside[..close])
    });
    let mut sum = 0_u16;
    for &byte in tag.unwrap_or(key) {
        sum ^= u16::from(byte) << 8;
        for _ in 0..8 {
            sum = if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 };
        }
    }
    sum % SLOTS
}

#[cfg(test)]
mod tests {
    use super::slot;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        for (key, expected) in
            [("123456789", 12_739), ("foo", 12_182), ("{foo}:meta", 12_182), ("{}foo", 9_500), ("a{foo}{bar}", 12_182)]
        {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
    }
}

/// A Redis that also speaks TLS, for tests of whatever connects to one.
#[cfg(test)]
pub(crate) mod encrypted {
    use geonce_services::{Redis, free_port};
    use std::os::unix::fs::PermissionsExt;

    pub(crate) struct Encrypted {
        pub(crate) server: Redis,
        /// The port where it speaks TLS.
        pub(crate) port: u16,
        /// The file with the certificate to trust.
        pub(crate) certificate: String,
        _folder: tempfile::TempDir,
    }

    impl Encrypted {
        pub(crate) fn start() -> Encrypted {
            let folder = tempfile::tempdir().unwrap();
            let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
            let texts = self::certificate();
            std::fs::write(&certificate, texts.0).unwrap();
            std::fs::write(&key, texts.1).unwrap();
            // The server runs as another user.
            for path in [folder.path(), &certificate, &key] {
                std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
            }
            let port = free_port();
            let (number, certificate, key) =
                (port.to_string(), certificate.display().to_string(), key.display().to_string());
            let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
            let settings = [&["--tls-port", &number][..], &files, &["--tls-auth-clients", "no"]].concat();
            let server = Redis::start(&settings);
            Encrypted { server, port, certificate, _folder: folder }
        }
    }

    /// A certificate for a server on this machine, and its key.
    pub(crate) fn certificate() -> (String, String) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        (pem("CERTIFICATE", made.cert.der()), pem("PRIVATE KEY", &made.signing_key.serialize_der()))
    }

    fn pem(label: &str, bytes: &[u8]) -> String {
        let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    }
}
