//! Calling the scripts: one at a time in each lane, repeated where the answer was lost.
//!
//! A call has a number in its lane, and the server keeps the last answer of each lane: a call that is repeated is told what
//! it was told before, and does nothing twice. A minute later the answer is gone; nothing is repeated for so long.

use super::row::millis;
use super::schema::SCHEMA_VERSION;
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::event::random;
use crate::redis::{Attempt, Connections, Tries, Trouble};
use crate::store::Lag;
use redis::{Cmd, Value};
use sha1::{Digest, Sha1};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

/// A script, and what the server knows it by.
pub(super) struct Script {
    text: String,
    sha: String,
}

impl Script {
    fn new(body: &str) -> Script {
        let prelude = include_str!("lua/prelude.lua");
        let lags: Vec<String> = Lag::bounds().iter().map(u64::to_string).collect();
        let constants = format!("local SCHEMA = '{SCHEMA_VERSION}'\nlocal LAGS = {{ {} }}", lags.join(", "));
        Script::alone(&format!("{constants}\n{prelude}\n{body}"))
    }

    fn alone(text: &str) -> Script {
        let mut sha = String::with_capacity(40);
        for byte in Sha1::digest(text) {
            let _ = write!(sha, "{byte:02x}");
        }
        Script { text: text.to_owned(), sha }
    }
}

macro_rules! scripts {
    ($($name:ident = $file:literal),+ $(,)?) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!($file)));)+
    };
}

scripts! {
    ACCEPT = "lua/accept.lua",
    LEASE = "lua/lease.lua",
    SETTLE = "lua/settle.lua",
    EXTEND = "lua/extend.lua",
    PLACE = "lua/place.lua",
    DECIDE = "lua/decide.lua",
    SWEEP = "lua/sweep.lua",
    READ = "lua/read.lua",
    STATUS = "lua/status.lua",
    DUE = "lua/due.lua",
}

/// Makes the store; the one script that needs none.
pub(super) static OPEN: LazyLock<Script> = LazyLock::new(|| Script::alone(include_str!("lua/open.lua")));

/// Whose time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// The server's: a gateway with a wrong clock cannot steal leases. Times of the gateway are differences.
    Server,
    /// The caller's, for tests that move it.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests move time"))]
    Given,
}

/// What calls are made with.
pub(super) struct Caller {
    pub(super) connections: Connections,
    /// What all keys begin with, in braces: they share a slot.
    pub(super) prefix: String,
    /// The id of the store, once it is open.
    pub(super) store: OnceLock<String>,
    pub(super) time: Time,
    /// Tells our lanes from those of others.
    instance: String,
    lanes: Mutex<Vec<u64>>,
    lanes_made: AtomicU64,
    calls: AtomicU64,
}

/// A lane that is in use.
struct Lane<'a> {
    caller: &'a Caller,
    number: u64,
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        self.caller.lanes.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

/// What is added to a call.
pub(super) type Fill<'a> = &'a (dyn Fn(&mut Cmd) + Sync);

impl Caller {
    pub(super) fn new(connections: Connections, prefix: String, time: Time) -> Caller {
        Caller {
            connections,
            prefix,
            store: OnceLock::new(),
            time,
            instance: format!("{:016x}", random() >> 64),
            lanes: Mutex::default(),
            lanes_made: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        }
    }

    fn lane(&self) -> Lane<'_> {
        let free = self.lanes.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Lane { caller: self, number: free.unwrap_or_else(|| self.lanes_made.fetch_add(1, Ordering::Relaxed)) }
    }

    /// A key of ours.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
    }

    /// The time on this machine, where that is what callers compare with.
    pub(super) fn now(&self, given: Timestamp) -> Timestamp {
        match self.time {
            Time::Server => SystemClock.now(),
            Time::Given => given,
        }
    }

    /// Asks something that changes nothing, or nothing more where it is asked again.
    pub(super) async fn ask(&self, script: &Script, now: Timestamp, fill: Fill<'_>) -> Attempt<Value> {
        self.persist(script, now, None, fill, &|value| Ok(value)).await
    }

    /// Has something done, once.
    pub(super) async fn run(&self, script: &Script, now: Timestamp, fill: Fill<'_>) -> Attempt<Value> {
        let lane = self.lane();
        self.persist(script, now, Some(&lane), fill, &|value| Ok(value)).await
    }

    /// Has something done, once, that has a text as its answer for each event: what begins with `!` is trouble. The
    /// first is of the whole call.
    pub(super) async fn run_each(
        &self,
        script: &Script,
        now: Timestamp,
        fill: Fill<'_>,
    ) -> Attempt<(String, Vec<Each>)> {
        let lane = self.lane();
        let each = |value| -> Attempt<Vec<Each>> {
            let texts: Vec<String> = redis::from_redis_value(value)?;
            let mut answers = Vec::with_capacity(texts.len());
            for text in texts {
                match text.strip_prefix('!').map(Trouble::told) {
                    Some(trouble) if trouble.is_worth_another_try() => return Err(trouble),
                    Some(trouble) => answers.push(Err(trouble)),
                    None => answers.push(Ok(text)),
                }
            }
            Ok(answers)
        };
        let mut answers = self.persist(script, now, Some(&lane), fill, &each).await?;
        if answers.is_empty() {
            return Err(Trouble::told("DAMAGED an answer that says nothing"));
        }
        Ok((answers.remove(0)?, answers))
    }

    async fn persist<T>(
        &self,
        script: &Script,
        now: Timestamp,
        lane: Option<&Lane<'_>>,
        fill: Fill<'_>,
        read: &(dyn Fn(Value) -> Attempt<T> + Sync),
    ) -> Attempt<T> {
        let number = format!("{:016x}", self.calls.fetch_add(1, Ordering::Relaxed));
        let lane = lane.map(|lane| format!("{}:{}", self.instance, lane.number)).unwrap_or_default();
        let clock = match self.time {
            Time::Server => "server",
            Time::Given => "given",
        };
        let store = self.store.get().map_or("", String::as_str);
        let header = |command: &mut Cmd| {
            command.arg(&self.prefix).arg(store).arg(&lane).arg(&number).arg(clock).arg(millis(now));
            fill(command);
        };
        self.tried(script, &header, read).await
    }

    /// Tries until the server has answered, or for as long as is worth it.
    pub(super) async fn tried<T>(
        &self,
        script: &Script,
        fill: Fill<'_>,
        read: &(dyn Fn(Value) -> Attempt<T> + Sync),
    ) -> Attempt<T> {
        let mut tries = Tries::new();
        loop {
            match self.once(script, fill, read).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => tries.again(trouble).await?,
            }
        }
    }

    async fn once<T>(
        &self,
        script: &Script,
        fill: Fill<'_>,
        read: &(dyn Fn(Value) -> Attempt<T> + Sync),
    ) -> Attempt<T> {
        let mut connection = self.connections.get().await?;
        let mut answer = self.command("EVALSHA", &script.sha, fill).query_async::<Value>(&mut connection.link).await;
        if answer.as_ref().is_err_and(|error| Trouble::from(error.clone()).is_unknown_script()) {
            answer = self.command("EVAL", &script.text, fill).query_async(&mut connection.link).await;
        }
        let answer = answer.map_err(Trouble::from).and_then(read);
        if answer.as_ref().is_err_and(Trouble::wants_another_connection) {
            self.connections.lost(&connection).await;
        }
        answer
    }

    fn command(&self, how: &str, script: &str, fill: Fill<'_>) -> Cmd {
        let mut command = redis::cmd(how);
        command.arg(script).arg(1).arg(self.key("meta"));
        fill(&mut command);
        command
    }
}

/// What a call answered for one event.
pub(super) type Each = std::result::Result<String, Trouble>;
