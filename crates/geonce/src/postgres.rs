//! Connections to `PostgreSQL`: pooled, encrypted where asked, with time-outs.
//!
//! Everything works through pgbouncer in transaction mode: statements are unnamed ([`Session::query`]), and settings last
//! for one transaction. A transaction is repeated where that cannot do harm: see [`Tries`].

mod trouble;

pub(crate) use trouble::{Tries, Trouble};

use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use deadpool_postgres::{Manager, ManagerConfig, Object, PoolError, RecyclingMethod, Runtime};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Config, Row, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// How long connecting may take.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// How long a request may wait for a free connection.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long the server works on one statement before it gives up; also how long a transaction may wait for a lock.
const STATEMENT_MILLIS_MAX: u64 = 10_000;
/// How long a statement or commit may go unanswered before the connection counts as lost.
const SILENCE_MAX: Duration = Duration::from_secs(12);
/// How long a transaction may stand idle before the server ends it: a gateway that froze must not hold up the others.
const IDLE_MILLIS_MAX: u64 = 15_000;
/// The longest name the server keeps whole.
const NAME_BYTES_MAX: usize = 63;

/// What an address says beyond what the driver reads.
#[derive(Debug)]
pub(crate) struct Address {
    config: Config,
    /// `schema=` of the address.
    pub(crate) schema: Option<String>,
    root: Option<String>,
    shown: String,
}

impl Address {
    /// Reads `postgresql://user@host/database?schema=…&sslmode=…&sslrootcert=…`.
    pub(crate) fn parse(url: &str) -> Result<Address> {
        let wrong = |why: String| {
            Error::new(Kind::Invalid, format!("{} is no address of PostgreSQL: {why}", without_password(url)))
                .hint("postgresql://user@host:5432/database")
        };
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut kept, mut schema, mut root, mut mode) = (Vec::new(), None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "schema" => schema = Some(value.to_owned()),
                "sslrootcert" => root = Some(value.to_owned()),
                "sslmode" => mode = Some(value),
                _ => kept.push(pair),
            }
        }
        if let Some(name) = &schema {
            check_name(name).map_err(&wrong)?;
        }
        let base = if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) };
        let mut config: Config = base.parse().map_err(|error: tokio_postgres::Error| {
            wrong(std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string))
        })?;
        let local = config.get_hosts().iter().all(|host| match host {
            Host::Tcp(name) => name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()),
            Host::Unix(_) => true,
        });
        config.ssl_mode(match mode {
            None if local => SslMode::Disable,
            None | Some("prefer" | "allow") => SslMode::Prefer,
            Some("disable") => SslMode::Disable,
            Some("require" | "verify-ca" | "verify-full") => SslMode::Require,
            Some(other) => return Err(wrong(format!("sslmode={other} is unknown"))),
        });
        config.connect_timeout(CONNECT_MAX).tcp_user_timeout(SILENCE_MAX).keepalives_idle(Duration::from_secs(30));
        if config.get_application_name().is_none() {
            config.application_name("geonce");
        }
        Ok(Address { config, schema, root, shown: without_password(url) })
    }

    /// The address without its password.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Whether both lead to the same database, as far as the addresses tell.
    #[expect(dead_code, reason = "for a sink in the store's database")]
    pub(crate) fn is_same_database(&self, other: &Address) -> bool {
        let parts = |config: &Config| {
            let database = config.get_dbname().or(config.get_user()).map(str::to_owned);
            (config.get_hosts().to_vec(), config.get_ports().to_vec(), database, config.get_user().map(str::to_owned))
        };
        parts(&self.config) == parts(&other.config)
    }
}

impl Address {
    /// Listens to a channel on a connection of its own and calls `heard` for every notification; returns when the
    /// connection is lost or cannot be made. Behind a pooler nothing may ever be heard.
    pub(crate) async fn listen(&self, channel: &str, heard: impl Fn()) -> std::result::Result<(), Trouble> {
        let wrong = |why| Error::new(Kind::Invalid, format!("connecting to {}", self.shown)).because(why);
        let tls = tls(self.root.as_deref()).map_err(wrong)?;
        let (client, mut connection) = self.config.connect(tls).await?;
        let listen = format!("LISTEN {}", quoted(channel));
        let mut asked = std::pin::pin!(client.batch_execute(&listen));
        let mut answered = false;
        loop {
            tokio::select! {
                done = &mut asked, if !answered => {
                    done?;
                    answered = true;
                }
                message = std::future::poll_fn(|context| connection.poll_message(context)) => match message {
                    Some(Ok(AsyncMessage::Notification(_))) => heard(),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                    None => return Ok(()),
                },
            }
        }
    }
}

/// Whether a name can be one of ours in the database.
pub(crate) fn check_name(name: &str) -> std::result::Result<(), String> {
    let fits = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(|c| c.is_control() || c == '\0');
    if fits { Ok(()) } else { Err(format!("{name:?} cannot be a name in the database")) }
}

/// A name in a statement.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Text in a statement that takes no parameters.
pub(crate) fn literal(text: &str) -> String {
    // The form with E means the same whatever the server's settings.
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "the address".to_owned() };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let user = user.map_or(String::new(), |user| format!("{}@", user.split(':').next().unwrap_or_default()));
    // The path's parameters may hold a password too.
    format!("{scheme}://{user}{host}{}", path.split('?').next().unwrap_or_default())
}

/// Connections to one database.
#[derive(Clone)]
pub(crate) struct Pool {
    inner: deadpool_postgres::Pool,
    shown: Arc<str>,
    /// What every transaction sets for itself.
    settings: Arc<str>,
}

impl Pool {
    /// Connects when a connection is first needed.
    pub(crate) fn new(address: &Address, connections_max: usize) -> Result<Pool> {
        let doing = || format!("connecting to {}", address.shown);
        let tls = tls(address.root.as_deref()).map_err(|why| Error::new(Kind::Invalid, doing()).because(why))?;
        let manager = Manager::from_config(
            address.config.clone(),
            tls,
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let inner = deadpool_postgres::Pool::builder(manager)
            .max_size(connections_max)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(WAIT_MAX))
            .create_timeout(Some(CONNECT_MAX))
            .recycle_timeout(Some(CONNECT_MAX))
            .build()
            .map_err(|error| Error::new(Kind::Internal, doing()).because(error))?;
        Ok(Pool { inner, shown: address.shown.as_str().into(), settings: settings().into() })
    }

    /// The same connections, whose transactions look for tables in `schema`.
    pub(crate) fn within(self, schema: &str) -> Pool {
        self.with("search_path", &quoted(schema))
    }

    /// The same connections, whose transactions set this for themselves.
    pub(crate) fn with(self, name: &str, value: &str) -> Pool {
        let settings = format!("{}, set_config({}, {}, true)", self.settings, literal(name), literal(value));
        Pool { settings: settings.into(), ..self }
    }

    /// A connection for single statements.
    pub(crate) async fn session(&self) -> std::result::Result<Session, Trouble> {
        let object = self.inner.get().await.map_err(|error| match error {
            PoolError::Backend(error) => Trouble::from(error),
            PoolError::Timeout(_) => Trouble::silent(format!("{} did not answer in time", self.shown)),
            other => Trouble::silent(other.to_string()),
        })?;
        Ok(Session { object: Some(object), open: AtomicBool::new(false), began: Timestamp::default() })
    }

    /// A connection with a transaction begun on it.
    pub(crate) async fn begin(&self) -> std::result::Result<Session, Trouble> {
        self.begin_as("BEGIN").await
    }

    /// A connection with a transaction that sees one moment and changes nothing.
    pub(crate) async fn begin_reading(&self) -> std::result::Result<Session, Trouble> {
        self.begin_as("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await
    }

    /// A connection with a transaction that `begin` begins.
    pub(crate) async fn begin_as(&self, begin: &str) -> std::result::Result<Session, Trouble> {
        let mut session = self.session().await?;
        *session.open.get_mut() = true;
        // One round trip for all of it, the server's clock included.
        let text = format!("{begin}; SELECT {}, {CLOCK}", self.settings);
        let answers = heard(session.client()?.simple_query(&text)).await?;
        let now = answers.iter().find_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => row.get(row.len().checked_sub(1)?)?.parse().ok(),
            _ => None,
        });
        let unreadable = || Error::new(Kind::Incompatible, "reading the server's clock");
        session.began = Timestamp::from_millis(now.ok_or_else(unreadable)?);
        Ok(session)
    }

    /// Ends all connections. Whoever waits for one is told.
    pub(crate) fn close(&self) {
        self.inner.close();
    }
}

/// The server's clock in milliseconds.
const CLOCK: &str = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

fn settings() -> String {
    let limits = [
        ("statement_timeout", STATEMENT_MILLIS_MAX),
        ("lock_timeout", STATEMENT_MILLIS_MAX),
        ("idle_in_transaction_session_timeout", IDLE_MILLIS_MAX),
    ];
    limits.map(|(name, millis)| format!("set_config('{name}', '{millis}', true)")).join(", ")
}

fn tls(root: Option<&str>) -> std::result::Result<MakeRustlsConnect, Box<dyn std::error::Error + Send + Sync>> {
    let mut roots = RootCertStore::empty();
    match root {
        Some(file) => {
            for certificate in CertificateDer::pem_file_iter(Path::new(file))? {
                roots.add(certificate?)?;
            }
        }
        // Where none is trusted, encrypted connections fail, and say so; others need none.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// A connection in hand. One that is dropped within a transaction is closed, not given back.
pub(crate) struct Session {
    object: Option<Object>,
    /// Whether it may be within a transaction, or wait for an answer.
    open: AtomicBool,
    /// The server's time when the transaction began.
    pub(crate) began: Timestamp,
}

/// A parameter and its type.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

impl Session {
    fn client(&self) -> std::result::Result<&Object, Trouble> {
        self.object.as_ref().ok_or_else(|| Trouble::silent("the connection is gone"))
    }

    /// Runs a statement and gives its rows. It has no name on the server, so any connection will do.
    pub(crate) async fn query(
        &self,
        text: &str,
        parameters: &[Parameter<'_>],
    ) -> std::result::Result<Vec<Row>, Trouble> {
        self.note(heard(self.client()?.query_typed(text, parameters)).await)
    }

    /// Runs a statement; how many rows it concerned.
    pub(crate) async fn execute(&self, text: &str, parameters: &[Parameter<'_>]) -> std::result::Result<u64, Trouble> {
        self.note(heard(self.client()?.execute_typed(text, parameters)).await)
    }

    /// Runs statements without parameters.
    pub(crate) async fn batch(&self, text: &str) -> std::result::Result<(), Trouble> {
        self.note(heard(self.client()?.batch_execute(text)).await)
    }

    /// A connection whose answer did not come is not given back: the next one would read it.
    fn note<T>(&self, answer: std::result::Result<T, Trouble>) -> std::result::Result<T, Trouble> {
        if matches!(answer, Err(Trouble::Silent(_))) {
            self.open.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// Ends a transaction: commits what succeeded, undoes what did not.
    pub(crate) async fn end<T>(self, result: std::result::Result<T, Trouble>) -> std::result::Result<T, Trouble> {
        match result {
            Ok(value) => {
                self.batch("COMMIT").await?;
                self.open.store(false, Ordering::Relaxed);
                Ok(value)
            }
            Err(trouble) => {
                if !matches!(trouble, Trouble::Silent(_)) && self.batch("ROLLBACK").await.is_ok() {
                    self.open.store(false, Ordering::Relaxed);
                }
                Err(trouble)
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let (true, Some(object)) = (*self.open.get_mut(), self.object.take()) {
            // What its transaction holds is not known; closing the connection undoes it.
            drop(Object::take(object));
        }
    }
}

/// The number of the lock that goes by this name.
pub(crate) fn lock_number(name: &str) -> i64 {
    let digest = Sha256::digest(name);
    digest.iter().take(8).fold(0, |number, &byte| (number << 8) | i64::from(byte))
}

async fn heard<T>(
    answer: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
) -> std::result::Result<T, Trouble> {
    match tokio::time::timeout(SILENCE_MAX, answer).await {
        Ok(answer) => answer.map_err(Trouble::from),
        Err(_) => Err(Trouble::silent("the server did not answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, without_password};
    use tokio_postgres::config::SslMode;

    #[test]
    fn addresses_are_read_and_shown_without_their_secrets() {
        let address =
            Address::parse("postgresql://me:geheim@db.example:5433/gis?schema=events&sslmode=require").unwrap();
        assert_eq!(address.schema.as_deref(), Some("events"));
        assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(address.shown(), "postgresql://me@db.example:5433/gis");
        assert!(!format!("{}", Address::parse("postgresql://me:geheim@h:x/y").unwrap_err()).contains("geheim"));
        assert_eq!(without_password("postgres://h/d?password=geheim"), "postgres://h/d");
        for (url, mode) in [
            ("postgresql://me@127.0.0.1/gis", SslMode::Disable),
            ("postgresql://me@db.example/gis", SslMode::Prefer),
            ("postgresql://me@127.0.0.1/gis?sslmode=verify-full", SslMode::Require),
        ] {
            assert_eq!(Address::parse(url).unwrap().config.get_ssl_mode(), mode, "{url}");
        }
        for url in
            ["postgresql://me@h/d?sslmode=perhaps", "postgresql://me@h/d?schema=", "postgresql://me@h/d?nonsense=1"]
        {
            assert!(Address::parse(url).is_err(), "{url}");
        }
    }
}
