//! Connections to `PostgreSQL`: pooled, encrypted where asked, with time-outs.
//!
//! Everything works through pgbouncer in transaction mode: statements have names, and settings outlast a transaction, only where
//! nothing is in between ([`link`]). A transaction is repeated where that cannot do harm: see [`Tries`].

mod link;
mod silence;
mod trouble;

pub(crate) use trouble::{Tries, Trouble};

use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use crate::event::random;
use bytes::Bytes;
use deadpool::Runtime;
use deadpool::managed::{Object, PoolError};
use futures_util::SinkExt;
use link::{Link, Links};
use sha2::{Digest, Sha256};
use silence::Asker;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row, SimpleQueryMessage, Statement};
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
/// How long beginning a transaction may take: it waits for nobody.
const BEGIN_MAX: Duration = Duration::from_secs(3);
/// How long a statement or commit may go unanswered before the connection counts as lost, whatever the server says.
const SILENCE_MAX: Duration = Duration::from_secs(12);
/// How long a transaction may stand idle before the server ends it: a gateway that froze must not hold up the others.
const IDLE_MILLIS_MAX: u64 = 15_000;
/// What is sent at a time where there is much to be sent.
const COPY_BYTES: usize = 256 << 10;
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
    inner: deadpool::managed::Pool<Links>,
    asker: Arc<Asker>,
    shown: Arc<str>,
    settings: Arc<Settings>,
    silence_max: Duration,
}

/// How long things may take at most, where that is longer than usual.
pub(crate) struct Patience {
    /// For a statement, and for its answer, while the server is at work on it.
    pub(crate) work: Duration,
    /// For a lock that others hold.
    pub(crate) lock: Duration,
    /// Between statements of a transaction.
    pub(crate) idle: Duration,
}

impl Pool {
    /// Connects when a connection is first needed.
    pub(crate) fn new(address: &Address, connections_max: usize) -> Result<Pool> {
        let doing = || format!("connecting to {}", address.shown);
        let tls = tls(address.root.as_deref()).map_err(|why| Error::new(Kind::Invalid, doing()).because(why))?;
        let asker = Arc::new(Asker::new(address.config.clone(), tls.clone()));
        let inner = deadpool::managed::Pool::builder(Links { config: address.config.clone(), tls })
            .max_size(connections_max)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(WAIT_MAX))
            .create_timeout(Some(CONNECT_MAX))
            .recycle_timeout(Some(CONNECT_MAX))
            .build()
            .map_err(|error| Error::new(Kind::Internal, doing()).because(error))?;
        Ok(Pool {
            inner,
            asker,
            shown: address.shown.as_str().into(),
            settings: Arc::new(Settings::usual()),
            silence_max: SILENCE_MAX,
        })
    }

    /// The same connections, for statements that take long.
    pub(crate) fn patient(self, patience: &Patience) -> Pool {
        let millis = |duration: Duration| duration.as_millis().to_string();
        let pool = self
            .with("statement_timeout", &millis(patience.work))
            .with("lock_timeout", &millis(patience.lock))
            .with("idle_in_transaction_session_timeout", &millis(patience.idle));
        Pool { silence_max: patience.work, ..pool }
    }

    /// The same connections, whose transactions look for tables in `schema`.
    pub(crate) fn within(self, schema: &str) -> Pool {
        self.with("search_path", &quoted(schema))
    }

    /// The same connections, whose transactions set this for themselves.
    pub(crate) fn with(self, name: &str, value: &str) -> Pool {
        let mut settings = self.settings.as_ref().clone();
        settings.0.push((name.to_owned(), value.to_owned()));
        Pool { settings: Arc::new(settings), ..self }
    }

    /// A connection for single statements.
    pub(crate) async fn session(&self) -> std::result::Result<Session, Trouble> {
        let object = self.inner.get().await.map_err(|error| match error {
            PoolError::Backend(error) => Trouble::from(error),
            PoolError::Timeout(_) => Trouble::silent(format!("{} did not answer in time", self.shown)),
            other => Trouble::silent(other.to_string()),
        })?;
        Ok(Session {
            object: Some(object),
            open: AtomicBool::new(false),
            began: Timestamp::default(),
            process: None,
            asker: Arc::clone(&self.asker),
            silence_max: self.silence_max,
        })
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
        let text = if heard(BEGIN_MAX, session.link()?.keep(&self.settings)).await? {
            format!("{begin}; SELECT pg_catalog.pg_backend_pid(), {CLOCK}")
        } else {
            format!("{begin}; SELECT {}, pg_catalog.pg_backend_pid(), {CLOCK}", self.settings.columns(true))
        };
        let answers = heard(BEGIN_MAX, session.client()?.simple_query(&text)).await?;
        let last = |place: usize| {
            answers.iter().find_map(|answer| match answer {
                SimpleQueryMessage::Row(row) => row.get(row.len().checked_sub(place)?),
                _ => None,
            })
        };
        let unreadable = || Error::new(Kind::Incompatible, "reading the server's clock");
        let now = last(1).and_then(|now| now.parse().ok()).ok_or_else(unreadable)?;
        session.process = last(2).and_then(|process| process.parse().ok());
        session.began = Timestamp::from_millis(now);
        Ok(session)
    }

    /// What every transaction sets for itself, as the columns of a query.
    pub(crate) fn settings(&self) -> String {
        self.settings.columns(true)
    }

    /// Ends all connections. Whoever waits for one is told.
    pub(crate) fn close(&self) {
        self.inner.close();
    }
}

/// The server's clock in milliseconds.
const CLOCK: &str = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// What holds in every transaction: names and values, of which the last counts.
#[derive(Clone, PartialEq)]
struct Settings(Vec<(String, String)>);

impl Settings {
    fn usual() -> Settings {
        let limits = [
            ("statement_timeout", STATEMENT_MILLIS_MAX),
            ("lock_timeout", STATEMENT_MILLIS_MAX),
            ("idle_in_transaction_session_timeout", IDLE_MILLIS_MAX),
        ];
        Settings(limits.map(|(name, millis)| (name.to_owned(), millis.to_string())).into())
    }

    /// As the columns of a query that sets them, for a transaction only or from then on.
    fn columns(&self, for_a_transaction: bool) -> String {
        let set = |(name, value): &(String, String)| {
            format!("pg_catalog.set_config({}, {}, {for_a_transaction})", literal(name), literal(value))
        };
        self.0.iter().map(set).collect::<Vec<_>>().join(", ")
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
    object: Option<Object<Links>>,
    /// Whether it may be within a transaction, or wait for an answer.
    open: AtomicBool,
    /// The server's time when the transaction began.
    pub(crate) began: Timestamp,
    /// The server's process for it; behind a pooler, until the transaction ends.
    process: Option<i32>,
    asker: Arc<Asker>,
    silence_max: Duration,
}

/// A parameter and its type.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

fn values<'a>(parameters: &[Parameter<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    parameters.iter().map(|&(value, _)| value).collect()
}

impl Session {
    fn link(&self) -> std::result::Result<&Link, Trouble> {
        self.object.as_deref().ok_or_else(|| Trouble::silent("the connection is gone"))
    }

    fn client(&self) -> std::result::Result<&Client, Trouble> {
        self.link().map(|link| &link.client)
    }

    /// Runs a statement and gives its rows. It has no name on the server, so any connection will do.
    pub(crate) async fn query(
        &self,
        text: &str,
        parameters: &[Parameter<'_>],
    ) -> std::result::Result<Vec<Row>, Trouble> {
        self.heard(self.client()?.query_typed(text, parameters)).await
    }

    /// Runs a statement; how many rows it concerned.
    pub(crate) async fn execute(&self, text: &str, parameters: &[Parameter<'_>]) -> std::result::Result<u64, Trouble> {
        self.heard(self.client()?.execute_typed(text, parameters)).await
    }

    /// Has the server know statements by name that are run all the time, so that it need not read them and think about them again.
    /// Each must be one that it can run in one way only: for what has a name it does not think again when tables have grown.
    pub(crate) async fn name(&self, texts: &[&'static str]) -> std::result::Result<(), Trouble> {
        self.heard(self.link()?.name(texts)).await
    }

    /// Runs a statement, by its name if it has one, and gives its rows.
    pub(crate) async fn query_named(
        &self,
        text: &str,
        parameters: &[Parameter<'_>],
    ) -> std::result::Result<Vec<Row>, Trouble> {
        let link = self.link()?;
        let Some(statement) = link.named(text) else { return self.query(text, parameters).await };
        self.heard(Box::pin(link.client.query(&statement, &values(parameters)))).await
    }

    /// Runs a statement, by its name if it has one; how many rows it concerned.
    pub(crate) async fn execute_named(
        &self,
        text: &str,
        parameters: &[Parameter<'_>],
    ) -> std::result::Result<u64, Trouble> {
        let link = self.link()?;
        let Some(statement) = link.named(text) else { return self.execute(text, parameters).await };
        self.heard(Box::pin(link.client.execute(&statement, &values(parameters)))).await
    }

    /// Runs statements without parameters.
    pub(crate) async fn batch(&self, text: &str) -> std::result::Result<(), Trouble> {
        self.heard(self.client()?.batch_execute(text)).await
    }

    /// Makes a `COPY … FROM STDIN` ready. The driver gives it a name: it must be dropped before the transaction ends.
    pub(crate) async fn prepare_copy(&self, text: &str) -> std::result::Result<Statement, Trouble> {
        self.heard(self.client()?.prepare(text)).await
    }

    /// Sends rows to a `COPY … FROM STDIN`; how many they were.
    pub(crate) async fn copy(&self, statement: &Statement, rows: Bytes) -> std::result::Result<u64, Trouble> {
        let client = self.client()?;
        let copied = async {
            let mut sink = std::pin::pin!(client.copy_in::<_, Bytes>(statement).await?);
            // What the server refuses closes the way there; why, it says at the end.
            let mut rest = rows;
            while !rest.is_empty() {
                let piece = rest.split_to(rest.len().min(COPY_BYTES));
                if sink.send(piece).await.is_err() {
                    break;
                }
            }
            sink.finish().await
        };
        self.heard(copied).await
    }

    /// The answer, or that it will not come. A connection whose answer did not come is not given back: the next one would
    /// read it.
    async fn heard<T>(
        &self,
        answer: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> std::result::Result<T, Trouble> {
        let answer = match self.process {
            None => heard(self.silence_max, answer).await,
            Some(process) => tokio::select! {
                biased;
                answer = heard(self.silence_max, answer) => answer,
                () = self.asker.lost(process) => Err(Trouble::silent("the answer was lost on the way")),
            },
        };
        if matches!(answer, Err(Trouble::Silent(_))) {
            self.open.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// Ends a transaction: commits what succeeded, undoes what did not.
    pub(crate) async fn end<T>(self, result: std::result::Result<T, Trouble>) -> std::result::Result<T, Trouble> {
        self.finish(result).await
    }

    async fn finish<T>(&self, result: std::result::Result<T, Trouble>) -> std::result::Result<T, Trouble> {
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

    /// Ends a transaction with its last statements, which are sent at once: the commit follows them without waiting for their
    /// answers. Where one of them fails, the server makes a rollback of it.
    pub(crate) async fn end_with<T>(
        &self,
        last: impl Future<Output = std::result::Result<T, Trouble>>,
    ) -> std::result::Result<T, Trouble> {
        let mut last = std::pin::pin!(last);
        // What could not even be sent must not be followed by a commit.
        if let Poll::Ready(result) = std::future::poll_fn(|context| Poll::Ready(last.as_mut().poll(context))).await {
            return self.finish(result).await;
        }
        let (result, committed) = tokio::join!(biased; last, self.batch("COMMIT"));
        if committed.is_ok() && !matches!(result, Err(Trouble::Silent(_))) {
            self.open.store(false, Ordering::Relaxed);
        }
        let value = result?;
        committed.map(|()| value)
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

/// Whether two connections, each within a transaction, are in the same database of the same server, for the same user.
///
/// A lock that one takes is seen by the other: that no address can tell, nor anything that a copy of the database holds too.
pub(crate) async fn is_same_database(one: &Session, other: &Session) -> std::result::Result<bool, Trouble> {
    let number = i64::try_from(random() >> 65).unwrap_or(0);
    let lock: [Parameter<'_>; 1] = [(&number, Type::INT8)];
    let take = "SELECT current_user::text, pg_advisory_xact_lock($1)::text";
    let (rows, free) = (one.query(take, &lock).await?, "SELECT current_user::text, pg_try_advisory_xact_lock($1)");
    let others = other.query(free, &lock).await?;
    let (Some(row), Some(others)) = (rows.first(), others.first()) else { return Ok(false) };
    let user = |row: &Row| row.try_get::<_, String>(0).ok();
    Ok(user(row).is_some() && user(row) == user(others) && others.try_get::<_, bool>(1).ok() == Some(false))
}

/// The number of the lock that goes by this name.
pub(crate) fn lock_number(name: &str) -> i64 {
    let digest = Sha256::digest(name);
    digest.iter().take(8).fold(0, |number, &byte| (number << 8) | i64::from(byte))
}

async fn heard<T>(
    max: Duration,
    answer: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
) -> std::result::Result<T, Trouble> {
    match tokio::time::timeout(max, answer).await {
        Ok(answer) => answer.map_err(Trouble::from),
        Err(_) => Err(Trouble::silent("the server did not answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, Pool, Trouble, is_same_database, without_password};
    use geonce_services::{Pgbouncer, Postgres};
    use tokio_postgres::config::SslMode;
    use tokio_postgres::types::Type;

    fn pool(url: &str) -> Pool {
        Pool::new(&Address::parse(url).unwrap(), 2).unwrap()
    }

    #[tokio::test]
    async fn servers_tell_whether_two_connections_lead_to_one_database() {
        let (server, other) = (Postgres::shared(), Postgres::start(&[]));
        let pooler = Pgbouncer::start(server);
        let url = server.database();
        let name = url.rsplit('/').next().unwrap();
        other.sql("postgres", &format!("CREATE DATABASE {name}"));
        server.sql("postgres", "CREATE ROLE somebody LOGIN SUPERUSER");
        let cases = [
            (url.clone(), true),
            (url.replace("127.0.0.1", "localhost"), true),
            (pooler.url(&url), true),
            (server.database(), false),
            (other.url(name), false),
            (url.replace("postgres@", "somebody@"), false),
        ];
        for (second, same) in cases {
            let (one, two) = (pool(&url).begin().await.unwrap(), pool(&second).begin().await.unwrap());
            assert_eq!(is_same_database(&one, &two).await.unwrap(), same, "{second}");
        }
    }

    /// How many statements the server knows by name after one was run in three transactions.
    async fn names(url: &str) -> i64 {
        let pool = pool(url);
        pool.session().await.unwrap().batch("CREATE TABLE count (n bigint)").await.unwrap();
        let text = "INSERT INTO count VALUES ($1)";
        for n in 0..3i64 {
            let session = pool.begin().await.unwrap();
            session.name(&[text]).await.unwrap();
            session.end_with(session.execute_named(text, &[(&n, Type::INT8)])).await.unwrap();
        }
        let session = pool.begin().await.unwrap();
        let rows = session.query("SELECT sum(n)::bigint FROM count", &[]).await.unwrap();
        assert_eq!(rows[0].get::<_, i64>(0), 3);
        let text = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT INTO count%'";
        session.query(text, &[]).await.unwrap()[0].get(0)
    }

    #[tokio::test]
    async fn statements_have_names_where_nothing_is_in_between() {
        let server = Postgres::shared();
        let (pooler, url) = (Pgbouncer::start(server), server.database());
        assert_eq!(names(&url).await, 1);
        let other = server.database();
        assert_eq!(names(&pooler.url(&other)).await, 0);
    }

    #[tokio::test]
    async fn connections_are_encrypted_and_the_server_is_known() {
        let server = Postgres::start(&[]);
        let (certificate, key) = crate::redis::encrypted::certificate();
        let file = server.encrypt(&certificate, &key);
        let is_encrypted = async |mode: &str| {
            let url = server.url("postgres").replace("127.0.0.1", "localhost") + mode;
            let session = pool(&url).begin().await?;
            let rows = session.query("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[]).await?;
            Ok::<bool, Trouble>(rows[0].get(0))
        };
        let trusted = format!("?sslmode=verify-full&sslrootcert={}", file.display());
        assert!(is_encrypted(&trusted).await.unwrap());
        assert!(is_encrypted(&trusted.replace("verify-full", "require")).await.unwrap());
        assert!(!is_encrypted("?sslmode=disable").await.unwrap());
        // Nobody vouches for this certificate.
        assert!(is_encrypted("?sslmode=require").await.is_err());
        let url = server.url("postgres").replace("127.0.0.1", "localhost");
        assert_eq!(names(&format!("{url}{trusted}")).await, 1, "it is the server's own, encrypted or not");
    }

    #[tokio::test]
    async fn a_commit_that_is_sent_along_takes_effect_only_if_everything_before_it_did() {
        let url = Postgres::shared().database();
        let pool = pool(&url);
        let session = pool.session().await.unwrap();
        session.batch("CREATE TABLE number (n integer PRIMARY KEY)").await.unwrap();
        let add = async |n: &str, last: &str| {
            let session = pool.begin().await.unwrap();
            session.batch(&format!("INSERT INTO number VALUES ({n})")).await.unwrap();
            session.end_with(session.batch(last)).await
        };
        add("1", "INSERT INTO number VALUES (2)").await.unwrap();
        let refused = add("3", "INSERT INTO number VALUES (1)").await.unwrap_err();
        assert_eq!(refused.state().unwrap().code(), "23505");
        let begun = pool.begin().await.unwrap();
        begun.batch("INSERT INTO number VALUES (4)").await.unwrap();
        let unsent = begun.end_with(async { Err::<(), _>(Trouble::silent("it could not be sent")) }).await;
        assert!(unsent.is_err());
        drop(begun);
        let rows = session.query("SELECT n FROM number ORDER BY n", &[]).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), [1, 2]);
    }

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
