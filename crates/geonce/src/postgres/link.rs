//! One connection to the server, and what the server keeps for it: settings, and names of statements.
//!
//! Both belong to one process of the server. Behind a pooler the next transaction may be with another process, where the
//! same name may be somebody else's statement: there nothing is kept. Which it is can be told by the number that a process
//! says when it is connected to, and again when it is asked: a pooler makes up the first.

use super::Settings;
use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, Error, SimpleQueryMessage, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Makes connections for a pool.
pub(super) struct Links {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
}

impl Manager for Links {
    type Type = Link;
    type Error = Error;

    async fn create(&self) -> Result<Link, Error> {
        // Large and rare: every transaction would carry it along.
        let (client, connection) = Box::pin(self.config.connect(self.tls.clone())).await?;
        // Why it ended, whoever waits for an answer is told.
        let task = tokio::spawn(connection).abort_handle();
        let mut link = Link { client, kept: None, task };
        if is_direct(&link.client).await? {
            link.kept = Some(Mutex::default());
        }
        Ok(link)
    }

    async fn recycle(&self, link: &mut Link, _: &Metrics) -> RecycleResult<Error> {
        if link.client.is_closed() { Err(RecycleError::message("the connection is closed")) } else { Ok(()) }
    }
}

pub(super) struct Link {
    pub(super) client: Client,
    /// `None` behind a pooler.
    kept: Option<Mutex<Kept>>,
    task: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        // Otherwise it would first wait for answers that nobody wants any more, and that may never come.
        self.task.abort();
    }
}

#[derive(Default)]
struct Kept {
    settings: Option<Arc<Settings>>,
    /// Statements that have a name.
    named: HashMap<&'static str, Statement>,
}

impl Link {
    fn kept(&self) -> Option<MutexGuard<'_, Kept>> {
        self.kept.as_ref().map(|kept| kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has the server keep settings from one transaction to the next; `false` where it cannot.
    pub(super) async fn keep(&self, settings: &Arc<Settings>) -> Result<bool, Error> {
        let Some(known) = self.kept().map(|kept| kept.settings.as_ref() == Some(settings)) else { return Ok(false) };
        if !known {
            // What was set before may remain: those who share connections have settings for the same things.
            self.client.batch_execute(&format!("SELECT {}", settings.columns(false))).await?;
            self.kept().into_iter().for_each(|mut kept| kept.settings = Some(Arc::clone(settings)));
        }
        Ok(true)
    }

    /// The name of a statement, if it was given one.
    pub(super) fn named(&self, text: &str) -> Option<Statement> {
        self.kept()?.named.get(text).cloned()
    }

    /// Gives names to statements that have none, where the server can keep them. Must be within a transaction that finds their tables.
    pub(super) async fn name(&self, texts: &[&'static str]) -> Result<(), Error> {
        let Some(unnamed) = self
            .kept()
            .map(|kept| texts.iter().filter(|&text| !kept.named.contains_key(text)).copied().collect::<Vec<_>>())
        else {
            return Ok(());
        };
        for text in unnamed {
            let statement = self.client.prepare(text).await?;
            self.kept().into_iter().for_each(|mut kept| drop(kept.named.insert(text, statement.clone())));
        }
        Ok(())
    }
}

/// Whether nothing stands between us and one process of the server.
async fn is_direct(client: &Client) -> Result<bool, Error> {
    let answers = client.simple_query("SELECT pg_catalog.pg_backend_pid()").await?;
    let asked = answers.iter().find_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    });
    Ok(asked.is_some() && told_process(client).await == asked)
}

/// What a message to cancel a statement starts with: its length and its kind. The number of the process follows.
const CANCEL: &[u8] = &[0, 0, 0, 16, 4, 210, 22, 46];

/// The number that the server's process said when it was connected to. The driver tells it to nobody but the server, in order
/// to cancel a statement: here it says so to us.
async fn told_process(client: &Client) -> Option<i32> {
    let mut said = Vec::new();
    client.cancel_token().cancel_query_raw(Ear(&mut said), Plainly).await.ok()?;
    let (process, _) = said.strip_prefix(ENCRYPT).unwrap_or(&said).strip_prefix(CANCEL)?.split_first_chunk()?;
    Some(i32::from_be_bytes(*process))
}

/// What the driver says first where connections are to be encrypted.
const ENCRYPT: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];

/// Keeps what is said to it, agrees to encryption, and does without.
struct Ear<'a>(&'a mut Vec<u8>);

impl AsyncWrite for Ear<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, said: &[u8]) -> Poll<io::Result<usize>> {
        self.0.extend_from_slice(said);
        Poll::Ready(Ok(said.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Ear<'_> {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, answer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        answer.put_slice(b"S");
        Poll::Ready(Ok(()))
    }
}

impl TlsStream for Ear<'_> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

struct Plainly;

impl<'a> TlsConnect<Ear<'a>> for Plainly {
    type Stream = Ear<'a>;
    type Error = Infallible;
    type Future = Ready<Result<Ear<'a>, Infallible>>;

    fn connect(self, stream: Ear<'a>) -> Self::Future {
        ready(Ok(stream))
    }
}
