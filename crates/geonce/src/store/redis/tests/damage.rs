//! Records that somebody has changed by hand: reported, never panicked on, and never in the way of others.

use super::{bench, fresh, sound};
use crate::error::Kind;
use crate::event::{Class, EventId, State};
use crate::store::conformance::{self, APPLIED, Bench, START, at};
use crate::store::{End, Filter, Settlement, Verdict};
use geonce_services::Redis as Server;

/// Does something to the store with this prefix, or to one event in it.
type Harm<'a> = &'a dyn Fn(&str, &str);

/// The key of an event's record.
fn record_key(prefix: &str, id: EventId) -> String {
    format!("{{{prefix}}}:event:{}", &id.to_string()[4..])
}

async fn kind_of_copy(bench: &Bench, name: &str) -> Option<Kind> {
    bench.store.accept(vec![bench.event(name, at(1))], at(1)).await.err().map(|error| error.kind())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_without_one_of_its_fields_is_reported() {
    let server = Server::shared();
    for field in ["source", "state", "received", "form", "keys", "content"] {
        let (url, prefix) = fresh(&server.url());
        let bench = bench(&url);
        let ids = bench.fill(&["a", "b"], START).await;
        server.say(&["HDEL", &record_key(&prefix, ids[0]), field]);
        assert_eq!(kind_of_copy(&bench, "a").await, Some(Kind::Corrupt), "{field}");
        let listed = bench.store.list(crate::store::ListRequest { limit: 10, ..Default::default() }).await;
        assert_eq!(listed.err().map(|error| error.kind()), Some(Kind::Corrupt), "{field}");
        let problems = bench.store.audit().await.unwrap();
        assert!(problems.iter().any(|problem| problem.contains(&ids[0].to_string())), "{field}: {problems:?}");
        // The other is none the worse for it.
        let leased = bench.store.lease(super::faults::request("map", 10), at(1)).await.unwrap();
        assert_eq!(leased.iter().map(|leased| leased.lease.event).collect::<Vec<_>>(), [ids[1]], "{field}");
        let end = Settlement { lease: leased[0].lease.clone(), end: APPLIED };
        assert!(bench.store.settle(vec![end], at(2)).await.is_ok());
        assert_eq!(bench.accept_one(bench.event("c", at(2)), at(2)).await, Verdict::Accepted);
        assert!(bench.store.sweep(10, at(100_000_000)).await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_without_its_payload_is_dead_and_says_so() {
    let server = Server::shared();
    let (url, prefix) = fresh(&server.url());
    let bench = bench(&url);
    let ids = bench.fill(&["a", "b"], START).await;
    server.say(&["DEL", &format!("{{{prefix}}}:body:{}", &ids[0].to_string()[4..])]);
    let leased = bench.lease("map", 10, at(1)).await;
    assert_eq!(leased.iter().map(|leased| leased.lease.event).collect::<Vec<_>>(), [ids[1]]);
    let record = bench.record(ids[0]).await;
    assert_eq!((record.state, record.cause.unwrap().code.as_str()), (State::Dead, "damaged"));
    let ledger = bench.ledger().await;
    assert_eq!((ledger.dead, ledger.waiting), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_finds_what_does_not_fit_together() {
    let server = Server::shared();
    let say = |words: &[&str]| drop(server.say(words));
    let damage: [(&str, Harm<'_>); 6] = [
        ("is not claimed for it", &|prefix, _| {
            // The keys of claims are bytes; all of this store's are deleted.
            let script = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end";
            say(&["EVAL", script, "0", &format!("{{{prefix}}}:key:*")]);
        }),
        ("has 0 events", &|prefix, _| say(&["DEL", &format!("{{{prefix}}}:open")])),
        ("the payload of", &|prefix, id| say(&["DEL", &format!("{{{prefix}}}:body:{id}")])),
        ("the books are off", &|prefix, _| say(&["HINCRBY", &format!("{{{prefix}}}:count:survey"), "applied", "1"])),
        ("waiting is 2", &|prefix, _| say(&["HINCRBY", &format!("{{{prefix}}}:count:survey"), "waiting", "1"])),
        ("no record", &|prefix, id| say(&["DEL", &format!("{{{prefix}}}:event:{id}")])),
    ];
    for (words, harm) in damage {
        let (url, prefix) = fresh(&server.url());
        let bench = bench(&url);
        let id = bench.fill(&["a"], START).await[0];
        sound(&bench).await;
        harm(&prefix, &id.to_string()[4..]);
        let problems = bench.store.audit().await.unwrap();
        assert!(problems.iter().any(|problem| problem.contains(words)), "{words}: {problems:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_forgotten_leaves_nothing_behind() {
    let server = Server::shared();
    let (url, prefix) = fresh(&server.url());
    let bench = bench(&url);
    let mut event = bench.event("a", START);
    event.aliases = vec![conformance::key("a2")];
    bench.accept(vec![event, bench.event("b", START), bench.event("c", START)], START).await;
    let leased = bench.lease("map", 10, START).await;
    bench.settle(&leased[0].lease, APPLIED, at(1)).await;
    bench.settle(&leased[1].lease, End::Dead(conformance::cause(Class::Schema)), at(1)).await;
    bench.settle(&leased[2].lease, End::Dead(conformance::cause(Class::Schema)), at(1)).await;
    assert_eq!(bench.purge(super::by_key("c"), at(1)).await, 1);
    let swept = bench.sweep(100, at(100_000_000)).await;
    assert_eq!((swept.forgotten, swept.purged), (1, 1));
    let left = server.say(&["KEYS", &format!("{{{prefix}}}:*")]);
    let mut names: Vec<&str> = left.lines().filter_map(|key| key.split(':').nth(1)).collect();
    names.retain(|name| *name != "answer");
    names.sort_unstable();
    assert_eq!(names, ["count", "meta", "sources"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_flushed_is_not_taken_for_an_empty_one() {
    let server = Server::start(&[]);
    let (url, _) = fresh(&server.url());
    let bench = bench(&url);
    bench.fill(&["a"], START).await;
    server.say(&["FLUSHALL"]);
    assert_eq!(kind_of_copy(&bench, "a").await, Some(Kind::Incompatible));
    assert!(bench.store.status().await.is_err());
    let again = super::bench(&url);
    assert_eq!(again.accept_one(again.event("a", at(1)), at(1)).await, Verdict::Accepted);
    assert_eq!(again.list(Filter::default()).await.len(), 1);
}
