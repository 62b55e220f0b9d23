//! Connections to PostgreSQL: pooled, encrypted where asked, with time-outs; and the one place that reads its errors.
//!
//! Everything works through pgbouncer in transaction mode: statements are unnamed ([`Session::query`]), and settings last
//! for one transaction. A transaction is repeated where that cannot do harm: see [`Tries`].

use crate::clock::Stopwatch;
use crate::error::{Error, Kind, Result};
use crate::event::random;
use deadpool_postgres::{Manager, ManagerConfig, Object, PoolError, RecyclingMethod, Runtime};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, Row};
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
/// How often a transaction is tried,
const TRIES_MAX: u32 = 4;
/// and for how long altogether.
const TRYING_MAX: Duration = Duration::from_secs(20);
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
    pub(crate) fn is_same_database(&self, other: &Address) -> bool {
        let parts = |config: &Config| {
            let database = config.get_dbname().or(config.get_user()).map(str::to_owned);
            (config.get_hosts().to_vec(), config.get_ports().to_vec(), database, config.get_user().map(str::to_owned))
        };
        parts(&self.config) == parts(&other.config)
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
}

impl Pool {
    /// Connects when a connection is first needed.
    pub(crate) fn new(address: &Address, connections_max: usize) -> Result<Pool> {
        let doing = || format!("connecting to {}", address.shown);
        let tls = tls(address.root.as_deref()).map_err(|why| Error::new(Kind::Invalid, doing()).because(why))?;
        let manager =
            Manager::from_config(address.config.clone(), tls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
        let inner = deadpool_postgres::Pool::builder(manager)
            .max_size(connections_max)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(WAIT_MAX))
            .create_timeout(Some(CONNECT_MAX))
            .recycle_timeout(Some(CONNECT_MAX))
            .build()
            .map_err(|error| Error::new(Kind::Internal, doing()).because(error))?;
        Ok(Pool { inner, shown: address.shown.as_str().into() })
    }

    /// A connection for single statements.
    pub(crate) async fn session(&self) -> std::result::Result<Session, Trouble> {
        let object = self.inner.get().await.map_err(|error| match error {
            PoolError::Backend(error) => Trouble::from(error),
            PoolError::Timeout(_) => Trouble::silent(format!("{} did not answer in time", self.shown)),
            other => Trouble::silent(other.to_string()),
        })?;
        Ok(Session { object: Some(object), open: false })
    }

    /// A connection with a transaction begun on it.
    pub(crate) async fn begin(&self) -> std::result::Result<Session, Trouble> {
        let mut session = self.session().await?;
        session.open = true;
        let millis = STATEMENT_MILLIS_MAX;
        session
            .batch(&format!("BEGIN; SET LOCAL statement_timeout = {millis}; SET LOCAL lock_timeout = {millis}"))
            .await?;
        Ok(session)
    }

    /// Ends all connections. Whoever waits for one is told.
    pub(crate) fn close(&self) {
        self.inner.close();
    }
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
    open: bool,
}

/// A parameter and its type.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

impl Session {
    fn client(&self) -> std::result::Result<&Object, Trouble> {
        self.object.as_ref().ok_or_else(|| Trouble::silent("the connection is gone"))
    }

    /// Runs a statement and gives its rows. It has no name on the server, so any connection will do.
    pub(crate) async fn query(&self, text: &str, parameters: &[Parameter<'_>]) -> std::result::Result<Vec<Row>, Trouble> {
        heard(self.client()?.query_typed(text, parameters)).await
    }

    /// Runs a statement; how many rows it concerned.
    pub(crate) async fn execute(&self, text: &str, parameters: &[Parameter<'_>]) -> std::result::Result<u64, Trouble> {
        heard(self.client()?.execute_typed(text, parameters)).await
    }

    /// Runs statements without parameters.
    pub(crate) async fn batch(&self, text: &str) -> std::result::Result<(), Trouble> {
        heard(self.client()?.batch_execute(text)).await
    }

    /// Ends a transaction: commits what succeeded, undoes what did not.
    pub(crate) async fn end<T>(mut self, result: std::result::Result<T, Trouble>) -> std::result::Result<T, Trouble> {
        match result {
            Ok(value) => {
                self.batch("COMMIT").await?;
                self.open = false;
                Ok(value)
            }
            Err(trouble) => {
                if self.batch("ROLLBACK").await.is_ok() {
                    self.open = false;
                }
                Err(trouble)
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let (true, Some(object)) = (self.open, self.object.take()) {
            // What its transaction holds is not known; closing the connection undoes it.
            drop(Object::take(object));
        }
    }
}

async fn heard<T>(
    answer: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
) -> std::result::Result<T, Trouble> {
    match tokio::time::timeout(SILENCE_MAX, answer).await {
        Ok(answer) => answer.map_err(Trouble::from),
        Err(_) => Err(Trouble::silent("the server did not answer")),
    }
}

/// Why a statement failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The server said no.
    Told(Box<tokio_postgres::error::DbError>),
    /// The connection was lost, or never made: what was under way may have happened.
    Silent(String),
    /// A fault that is neither: ours, or data that is not what it should be.
    Other(Error),
}

impl Trouble {
    pub(crate) fn silent(what: impl Into<String>) -> Trouble {
        Trouble::Silent(what.into())
    }

    /// The five characters that classify what the server said.
    pub(crate) fn state(&self) -> Option<&SqlState> {
        match self {
            Trouble::Told(error) => Some(error.code()),
            _ => None,
        }
    }

    /// Whether the same transaction may succeed when it is run again at once.
    fn is_worth_another_try(&self) -> bool {
        match self {
            Trouble::Told(error) => {
                let code = error.code();
                [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code)
                    || matches!(code.code(), "57P01" | "57P02" | "57P03" | "08000" | "08003" | "08006")
            }
            Trouble::Silent(_) => true,
            Trouble::Other(_) => false,
        }
    }

    fn kind(&self) -> Kind {
        let code = match self {
            Trouble::Silent(_) => return Kind::Unavailable,
            Trouble::Other(error) => return error.kind(),
            Trouble::Told(error) => error.code().code(),
        };
        match code {
            "42501" => Kind::Permission,
            "42P01" | "42703" | "42883" | "3F000" => Kind::Incompatible,
            "3D000" => Kind::Invalid,
            "XX001" | "XX002" => Kind::Corrupt,
            "55P03" | "57014" | "25006" => Kind::Unavailable,
            _ => match &code[..code.len().min(2)] {
                "08" | "40" | "57" | "58" => Kind::Unavailable,
                "53" => Kind::Resource,
                "28" => Kind::Permission,
                _ => Kind::Internal,
            },
        }
    }

    /// The error of a store or a sink.
    pub(crate) fn explain(self, doing: &str) -> Error {
        let kind = self.kind();
        match self {
            Trouble::Other(error) => error,
            Trouble::Silent(what) => Error::new(kind, doing).because(what),
            Trouble::Told(error) => {
                let explained = Error::new(kind, doing);
                let text = format!("{} ({})", error.message(), error.code().code());
                let explained = explained.because(text);
                match error.hint() {
                    Some(hint) => explained.hint(hint),
                    None => explained,
                }
            }
        }
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Trouble {
        if let Some(told) = error.as_db_error() {
            return Trouble::Told(Box::new(told.clone()));
        }
        let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        let text = format!("{error}{source}");
        // A value that cannot be sent or read is not the network's fault.
        let io = std::error::Error::source(&error).is_some_and(<dyn std::error::Error>::is::<std::io::Error>);
        if error.is_closed() || io || text.contains("connect") || text.contains("TLS") || text.contains("tls") {
            Trouble::Silent(text)
        } else {
            Trouble::Other(Error::new(Kind::Internal, "talking to PostgreSQL").because(text))
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Other(error)
    }
}

/// How often a transaction was tried. Transactions that are tried again recognise what they did before: by the ids of
/// events, by tokens, by keys.
pub(crate) struct Tries {
    began: Stopwatch,
    tried: u32,
}

impl Tries {
    pub(crate) fn new() -> Tries {
        Tries { began: Stopwatch::start(), tried: 0 }
    }

    /// Returns when it is time to try again; the trouble, if that would not help or was tried enough.
    pub(crate) async fn again(&mut self, trouble: Trouble) -> std::result::Result<(), Trouble> {
        self.tried += 1;
        if !trouble.is_worth_another_try() || self.tried >= TRIES_MAX || self.began.elapsed() > TRYING_MAX {
            return Err(trouble);
        }
        // Two that met in a deadlock should not meet again.
        let spread = u64::try_from(random() % 20).unwrap_or(0) * u64::from(self.tried);
        tokio::time::sleep(Duration::from_millis(5 + spread)).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, without_password};
    use tokio_postgres::config::SslMode;

    #[test]
    fn addresses_are_read_and_shown_without_their_secrets() {
        let address = Address::parse("postgresql://me:geheim@db.example:5433/gis?schema=events&sslmode=require").unwrap();
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
        for url in ["postgresql://me@h/d?sslmode=perhaps", "postgresql://me@h/d?schema=", "postgresql://me@h/d?nonsense=1"] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
    }
}
