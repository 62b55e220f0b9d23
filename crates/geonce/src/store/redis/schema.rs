//! The store's keys, which store it is, and whether the server can keep what it is given.
//!
//! Every key begins with the prefix in braces, so that all of a store is in one slot of a Cluster and a script sees all
//! of it. Keys: `meta` (schema, store id, last token), `event:ID` (record; work by sink, and who holds it), `body:ID` (payload), `key:KEY`
//! (16 bytes; the event that claimed it), `due:SINK` (events by when they may be leased, or their lease lapses), `leased`
//! (events with a lease), `turn:SINK` (entity to the event that has its turn), `line:SINK:ENTITY` (events that are held for
//! others of their entity, by rank and id), `all`, `open`, `dead` (in order of ids), `done`, `died` (in order of time),
//! `place`, `cell:SCOPE CELL`, `places` (who may be near to others), `sources`, `count:SOURCE` (the books), `answer:LANE` (last answers; the only keys that expire by themselves), and the
//! channel `ready`.

use super::call::{Caller, OPEN};
use crate::error::{Error, Kind};
use crate::event::random;
use crate::redis::{Attempt, Finder, Node, Trouble};
use crate::store::Access;
use redis::aio::MultiplexedConnection;
use std::collections::HashMap;

/// The schema that this release writes.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// What the server must be set to, and what is lost otherwise.
const SETTINGS: [(&str, &str, &str); 4] = [
    ("maxmemory-policy", "noeviction", "Redis would forget events to make room"),
    ("appendonly", "yes", "a restart would lose events"),
    ("appendfsync", "always", "a power cut would lose events that were acknowledged"),
    (
        "no-appendfsync-on-rewrite",
        "no",
        "while the log is rewritten, a power cut would lose events that were acknowledged",
    ),
];

/// Makes the store where there is none, unless a tool asks, and remembers which it is.
pub(super) async fn open(caller: &Caller, access: Access) -> Attempt<()> {
    let fresh = if access == Access::Tool { String::new() } else { format!("{:032x}", random()) };
    let version = SCHEMA_VERSION.to_string();
    let fill = |command: &mut redis::Cmd| {
        command.arg(&caller.prefix).arg(&version).arg(&fresh);
    };
    let read = |value| Ok(redis::from_redis_value::<Option<(String, String)>>(value)?);
    let shown = caller.connections.address().shown();
    let doing = format!("opening the store {shown}");
    let Some((schema, store)) = caller.tried(&OPEN, &fill, &read).await? else {
        let error = Error::new(Kind::Missing, doing).because("there is none").hint("start the gateway once");
        return Err(error.into());
    };
    if schema != version {
        let newer = schema.parse::<u32>().is_ok_and(|schema| schema > SCHEMA_VERSION);
        let error = if newer {
            let message = format!("it has schema {schema}, this release reads schema {version}: a newer one wrote it");
            Error::new(Kind::Incompatible, doing).because(message).hint("use the release that wrote it, or a later one")
        } else {
            let message = format!("what is at {} is no store of geonce", caller.key("meta"));
            Error::new(Kind::Incompatible, doing).because(message).hint("name another prefix: ?prefix=…")
        };
        return Err(error.into());
    }
    // Opened once; a second time would be the same store.
    let _ = caller.store.set(store);
    Ok(())
}

/// Looks at every primary that the store may come to be on.
pub(super) async fn check_all(caller: &Caller) -> Attempt<()> {
    if caller.connections.address().finder != Finder::Cluster {
        // The one primary was looked at when it was connected to.
        return Ok(());
    }
    for node in caller.connections.primaries().await? {
        let mut link = caller.connections.connect_to(&node).await?;
        check(&mut link, &node, false).await?;
    }
    Ok(())
}

/// How a server may lose what it is given, and what to do about it.
pub(super) async fn risks(link: &mut MultiplexedConnection) -> Attempt<Vec<(String, String)>> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET");
    for (name, _, _) in SETTINGS {
        command.arg(name);
    }
    let known: HashMap<String, String> = match command.query_async(link).await.map_err(Trouble::from) {
        Ok(known) => known,
        Err(trouble) if trouble.is_forbidden() => HashMap::new(),
        Err(trouble) => return Err(trouble),
    };
    let mut risks = Vec::new();
    for (name, wanted, why) in SETTINGS {
        match known.get(name).map(String::as_str) {
            Some(value) if value == wanted => {}
            Some(value) => risks
                .push((format!("{name} is {value}: {why}"), format!("CONFIG SET {name} {wanted}, and in redis.conf"))),
            None => risks.push((
                format!("it does not say what {name} is set to, so it may lose events"),
                "allow this user CONFIG GET".to_owned(),
            )),
        }
    }
    Ok(risks)
}

/// Whether a server keeps what it is given. One that became the primary while the store is `running` may be set right, or
/// may give way to another, so until then nothing is taken.
pub(super) async fn check(link: &mut MultiplexedConnection, node: &Node, running: bool) -> Attempt<()> {
    let kind = if running { Kind::Unavailable } else { Kind::Invalid };
    match risks(link).await?.into_iter().next() {
        None => Ok(()),
        Some((why, hint)) => Err(Error::new(kind, format!("{node} is not fit to be a store"))
            .because(why)
            .hint(format!("{hint}; or accept the loss in words: store.accept_loss"))
            .into()),
    }
}
