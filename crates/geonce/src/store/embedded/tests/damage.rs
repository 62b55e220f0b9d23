//! A full disk, a panic, and bits that flip.

use super::{TINY, bench, gateway, knows, open};
use crate::error::Kind;
use crate::event::{Class, EventId, Outcome};
use crate::store::conformance::{APPLIED, Bench, START, at, cause, key};
use crate::store::embedded::Embedded;
use crate::store::{Access, Claim, End, Filter, Options, Placed, RUNS, ResultText, Spot, Store, Verdict};
use std::path::Path;
use std::sync::Arc;

async fn limit_pages(store: &Embedded, more: i64) {
    store
        .write("limiting the file", (0, 0), move |group| {
            let pages: i64 = group.connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
            group.connection.pragma_update_and_check(None, "max_page_count", pages + more, |_| Ok(()))?;
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_full_disk_refuses_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = gateway(&folder.path().join("geonce.db"));
    let bench = bench(&store);
    limit_pages(&store, 30).await;
    let mut names = Vec::new();
    let refused = loop {
        let name = format!("n{}", names.len());
        let mut batch = vec![bench.event(&name, START)];
        batch[0].payload = vec![b' '; 2_000].into();
        match store.accept(batch, START).await {
            Ok(_) => names.push(name),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), Kind::Resource, "{refused}");
    assert!(refused.is_transient() && refused.hint_text().is_some() && names.len() > 5);
    let next = format!("n{}", names.len());
    assert_eq!(store.status().await.unwrap().ledgers["survey"].received, names.len() as u64);
    limit_pages(&store, 1_000_000).await;
    assert_eq!(bench.accept_one(bench.event(&next, START), START).await, Verdict::Accepted);
    knows(&bench, &names).await;
}

#[tokio::test]
async fn a_panic_fails_its_request_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("geonce.db"), Access::Gateway, TINY);
    let bench = bench(&store);
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    bench.fill(&names.iter().map(String::as_str).collect::<Vec<_>>(), START).await;
    let panics = store.write("panicking", (0, 0), |group| -> super::super::failure::Attempt<()> {
        group.claim(super::super::claims::Key([1; 16]), [2; 16])?;
        panic!("a planted bug")
    });
    let beside = store.accept(vec![bench.event("beside", START)], START);
    let (panicked, accepted) = tokio::join!(panics, beside);
    assert_eq!(panicked.err().map(|error| error.kind()), Some(Kind::Internal));
    assert_eq!(accepted.unwrap(), [Verdict::Accepted]);
    knows(&bench, &names).await;
}

fn in_a_cell(event: EventId, claim: Claim) -> Spot {
    let body = format!("{event}").repeat(2).into();
    Spot { event, scope: [3; 16], cells: vec![5], home: 5, body, until: at(1_000), claim }
}

/// Some events in every state.
async fn varied(file: &Path) -> Vec<String> {
    let store = open(file, Access::Gateway, TINY);
    let bench = bench(&store);
    let mut names = Vec::new();
    for number in 0..60_u64 {
        let mut event = bench.event_for(&format!("n{number}"), &["map", "log"], at(number));
        event.aliases = vec![key(&format!("a{number}"))];
        event.content = [0; 32];
        bench.accept_one(event, at(number)).await;
        names.extend([format!("n{number}"), format!("a{number}")]);
    }
    let leased = bench.lease("map", 40, at(100)).await;
    let spots = leased.iter().enumerate().map(|(number, leased)| {
        let claim = if number % 4 == 0 { Claim::Decided(format!("{number}").repeat(30).into()) } else { Claim::Anyway };
        in_a_cell(leased.lease.event, claim)
    });
    store.place(spots.collect(), at(100)).await.unwrap();
    for (place, leased) in leased.iter().enumerate().take(30) {
        let end = if place % 3 == 0 { End::Dead(cause(Class::Schema)) } else { APPLIED };
        bench.settle(&leased.lease, end, at(101)).await;
    }
    for (place, leased) in bench.lease("log", 20, at(102)).await.iter().enumerate() {
        let result = match place % 3 {
            0 => None,
            1 => Some(ResultText::row("log", "public.log")),
            _ => ResultText::new(format!("{{\"line\":{place}}}")).ok(),
        };
        bench.settle(&leased.lease, End::Done(Outcome::Applied, result), at(103)).await;
    }
    for number in 0..6_u64 {
        let run = bench.event_for(&format!("run{number}"), &[RUNS], at(104));
        let id = run.id;
        bench.accept_one(run, at(104)).await;
        let lease = bench.lease_event(RUNS, id, at(104)).await.unwrap().lease;
        if number % 2 == 0 {
            bench.settle(&lease, APPLIED, at(105)).await;
        }
    }
    store.close().await.unwrap();
    names
}

/// Everything that can be asked of a store; an error if it answers with one, or its audit finds something.
async fn everything(store: &Arc<Embedded>, names: &[String]) -> Result<String, String> {
    let bench: Bench = bench(store);
    let problems = store.audit().await.map_err(|error| error.to_string())?;
    if !problems.is_empty() {
        return Err(problems.join("; "));
    }
    let request = crate::store::ListRequest { filter: Filter::default(), before: None, limit: 1_000, payloads: true };
    let records = store.list(request).await.map_err(|error| error.to_string())?;
    let mut status = store.status().await.map_err(|error| error.to_string())?;
    (status.bytes, status.bytes_free) = (0, 0);
    let batch = names.iter().map(|name| bench.event(name, at(200))).collect();
    let verdicts = store.accept(batch, at(200)).await.map_err(|error| error.to_string())?;
    let asks = in_a_cell(EventId::from_bytes([1; 16]), Claim::Unless(Vec::new()));
    let placed = store.place(vec![asks], at(200)).await.map_err(|error| error.to_string())?;
    Ok(format!("{records:?} {status:?} {verdicts:?} {placed:?}"))
}

/// Where two long texts begin to differ.
fn difference(left: &str, right: &str) -> String {
    let place = left.bytes().zip(right.bytes()).position(|(left, right)| left != right).unwrap_or_default();
    let around = |text: &str| String::from_utf8_lossy(&text.as_bytes()[place.saturating_sub(60)..][..120]).into_owned();
    format!("{:?} instead of {:?}", around(left), around(right))
}

#[tokio::test]
async fn another_result_than_was_given_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    varied(&file).await;
    let store = gateway(&file);
    let records = bench(&store).list(Filter::default()).await;
    let own = records.iter().find(|record| record.result.as_deref().is_some_and(|text| text.contains("line"))).unwrap();
    let connection = rusqlite::Connection::open(&file).unwrap();
    for other in ["'{\"line\":99}'", "1", "NULL"] {
        let change = format!("UPDATE event SET result = {other} WHERE id = ?1");
        assert_eq!(connection.execute(&change, [own.id.to_bytes()]).unwrap(), 1);
        let filter = Filter { id: Some(own.id), ..Filter::default() };
        let request = crate::store::ListRequest { filter, before: None, limit: 1, payloads: false };
        assert_eq!(store.list(request).await.err().map(|error| error.kind()), Some(Kind::Corrupt), "{other}");
        assert!(!store.audit().await.unwrap().is_empty(), "{other}");
    }
}

#[tokio::test]
async fn a_damaged_place_is_noticed_and_keeps_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    varied(&file).await;
    let store = gateway(&file);
    let event = EventId::from_bytes([1; 16]);
    let ask = async || match &store.place(vec![in_a_cell(event, Claim::Unless(Vec::new()))], at(300)).await.unwrap()[..]
    {
        [Placed::Neighbours(near)] => near.len(),
        other => panic!("{other:?}"),
    };
    let whole = ask().await;
    assert!(whole > 5, "{whole}");
    let connection = rusqlite::Connection::open(&file).unwrap();
    let change = "UPDATE place SET body = zeroblob(9) WHERE event = (SELECT max(event) FROM place WHERE cell = 5)";
    assert_eq!(connection.execute(change, []).unwrap(), 1);
    let problems = store.audit().await.unwrap();
    assert!(problems[0].contains("place") && problems.len() == 1, "{problems:?}");
    assert_eq!(ask().await, whole - 1);
    assert_eq!(store.audit().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_flipped_bit_is_detected_or_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    let names = varied(&file).await;
    let content = std::fs::read(&file).unwrap();
    let copy = folder.path().join("copy.db");
    std::fs::copy(&file, &copy).unwrap();
    let untouched = everything(&open(&copy, Access::Gateway, TINY), &names).await.unwrap();
    let mut random = 0x0123_4567_89AB_CDEF_u64;
    let mut detected = 0;
    for _ in 0..200 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bit = usize::try_from(random >> 20).unwrap() % (content.len() * 8);
        let mut flipped = content.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(crate::store::embedded::beside(&copy, suffix));
        }
        std::fs::write(&copy, flipped).unwrap();
        let answer = match Embedded::open(Some(&copy), &Options::default(), Access::Gateway, TINY) {
            Ok(store) => everything(&Arc::new(store), &names).await,
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Ok(answer) => assert!(answer == untouched, "bit {bit}: {}, and no error", difference(&answer, &untouched)),
            Err(_) => detected += 1,
        }
    }
    assert!(detected > 40, "only {detected} of 200 were detected: is anything checked?");
}

/// Changes one key in a segment by its last bit, as a disk might.
fn damage_a_key(file: &Path, segment: i64) {
    let connection = rusqlite::Connection::open(file).unwrap();
    let select = "SELECT key FROM sealed WHERE segment = ?1 ORDER BY key LIMIT 1";
    let key: [u8; 16] = connection.query_row(select, [segment], |row| row.get(0)).unwrap();
    let mut other = key;
    other[15] ^= 1;
    assert_eq!(connection.execute("UPDATE sealed SET key = ?1 WHERE key = ?2", [other, key]).unwrap(), 1);
}

#[tokio::test]
async fn a_damaged_key_is_noticed_while_the_log_still_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    varied(&file).await;
    let connection = rusqlite::Connection::open(&file).unwrap();
    let segment: i64 =
        connection.query_row("SELECT max(number) FROM segment WHERE ready = 1", [], |row| row.get(0)).unwrap();
    // The segment is complete, the log not trimmed yet: a crash in between leaves this.
    connection
        .execute(
            "INSERT OR IGNORE INTO claim SELECT last_seq - row_number() OVER (), key, event FROM sealed
             JOIN segment ON number = segment WHERE number = ?1",
            [segment],
        )
        .unwrap();
    drop(connection);
    damage_a_key(&file, segment);
    let problems = open(&file, Access::Gateway, TINY).audit().await.unwrap();
    assert!(problems.iter().any(|problem| problem.contains("is not claimed for it")), "{problems:?}");
}

#[tokio::test]
async fn a_damaged_copy_of_the_log_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geonce.db");
    let names = varied(&file).await;
    let connection = rusqlite::Connection::open(&file).unwrap();
    // All of it in the log, and a segment begun that has three of its keys.
    connection
        .execute_batch(
            "INSERT OR REPLACE INTO claim SELECT row_number() OVER (), key, event FROM
               (SELECT key, event FROM sealed UNION SELECT key, event FROM claim);
             DELETE FROM sealed; DELETE FROM segment;
             INSERT INTO segment SELECT 1, 0, max(seq), 0, 0, NULL FROM claim;
             INSERT INTO sealed SELECT 1, key, event FROM claim ORDER BY key LIMIT 3;",
        )
        .unwrap();
    drop(connection);
    damage_a_key(&file, 1);
    let store = open(&file, Access::Gateway, TINY);
    assert_eq!(store.audit().await.unwrap(), Vec::<String>::new());
    knows(&bench(&store), &names).await;
    store.close().await.unwrap();
    let store = open(&file, Access::Gateway, TINY);
    knows(&bench(&store), &names).await;
    assert_eq!(store.audit().await.unwrap(), Vec::<String>::new());
}
