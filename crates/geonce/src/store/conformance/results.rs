//! Checks of what events become: results, and leases of one event for callers who do the work themselves.

use super::{APPLIED, Bench, Filter, START, at, cause};
use crate::event::{Class, Outcome, State};
use crate::store::{End, RESULT_BYTES_MAX, RUNS, ResultText, Settled, Verdict};
use std::sync::Arc;
use std::time::Duration;

fn done(text: &str) -> End {
    End::Done(Outcome::Applied, Some(ResultText::new(text).unwrap()))
}

pub(super) async fn a_result_is_kept_until_its_event_is_forgotten(bench: &Bench) {
    let longest = "é".repeat(RESULT_BYTES_MAX / 2);
    let texts = ["{\"rows\":3}", "", "no JSON \u{1F5FA} \"at\" all\r\n", &longest];
    for (number, text) in texts.iter().enumerate() {
        let id = bench.fill(&[&format!("own{number}")], START).await[0];
        bench.settle_all("map", done(text), START).await;
        assert_eq!(bench.record(id).await.result.as_deref(), Some(*text));
    }
    let rows = bench.fill(&["a", "b"], START).await;
    let row = End::Done(Outcome::Applied, Some(ResultText::row("map", "public.map")));
    bench.settle_all("map", row, START).await;
    for id in rows {
        let record = bench.record(id).await;
        let result: serde_json::Value = serde_json::from_str(record.result.as_deref().unwrap()).unwrap();
        let key = record.key.text(geonce_key::Encoding::Base64);
        assert_eq!(result, serde_json::json!({"sink": "map", "table": "public.map", "rows": 1, "key": key}));
    }
    let without = bench.fill(&["c"], START).await[0];
    bench.settle_all("map", APPLIED, START).await;
    assert_eq!(bench.record(without).await.result, None);
    // A redelivery changes the record, but not what became of the event.
    let again = bench.accept_one(bench.event("own0", at(1)), at(1)).await;
    assert!(matches!(again, Verdict::Duplicate { state: State::Done, .. }), "{again:?}");
    let found = bench.list(Filter { key: Some(super::key("own0").key()), ..Filter::default() }).await;
    assert_eq!((found[0].result.as_deref(), found[0].duplicates), (Some(texts[0]), 1));
    let month = at(31 * 24 * 3_600);
    while bench.sweep(100, month).await.more {}
    assert!(bench.list(Filter::default()).await.is_empty());
}

pub(super) async fn of_several_results_the_first_is_kept(bench: &Bench) {
    let event = bench.event_for("a", &["map", "log", "mail"], START);
    let id = event.id;
    assert_eq!(bench.accept_one(event, START).await, Verdict::Accepted);
    for (sink, end) in [("log", APPLIED), ("map", done("first")), ("mail", End::Dead(cause(Class::Schema)))] {
        let lease = bench.lease(sink, 1, START).await.remove(0).lease;
        assert_eq!(bench.settle(&lease, end, at(1)).await, Settled::Ok);
        assert_eq!(bench.record(id).await.result, None, "it is not done");
    }
    assert_eq!(bench.record(id).await.state, State::Dead);
    assert_eq!(bench.replay(Filter::default(), at(2)).await, 1);
    let lease = bench.lease("mail", 1, at(2)).await.remove(0).lease;
    assert_eq!(bench.settle(&lease, done("second"), at(3)).await, Settled::Ok);
    assert_eq!(bench.record(id).await.result.as_deref(), Some("first"));
}

pub(super) async fn one_event_can_be_leased_by_its_id(bench: &Bench) {
    let ids = bench.fill(&["a", "b", "c"], START).await;
    let second = bench.lease_event("map", ids[1], START).await.unwrap();
    assert_eq!((second.lease.event, second.lapses, &second.payload[..]), (ids[1], 0, &b"{\"name\":\"b\"}"[..]));
    assert!(bench.lease_event("map", ids[1], at(1)).await.is_none(), "it is held");
    assert!(bench.lease_event("log", ids[0], at(1)).await.is_none(), "there is no such work");
    assert!(bench.lease_event("map", bench.ids.next(START), at(1)).await.is_none(), "there is no such event");
    assert!(bench.lease_event("map", ids[2], START.minus(Duration::from_secs(1))).await.is_none(), "it is not due");
    let taken = bench.lease_event("map", ids[1], at(61)).await.unwrap();
    assert_eq!(taken.lapses, 1);
    assert!(taken.lease.token > second.lease.token);
    assert_eq!(bench.settle(&second.lease, APPLIED, at(62)).await, Settled::LeaseLost);
    assert_eq!(bench.settle(&taken.lease, APPLIED, at(62)).await, Settled::Ok);
    assert!(bench.lease_event("map", ids[1], at(200)).await.is_none(), "it is done");
    assert_eq!(bench.lease("map", 9, at(62)).await.len(), 2, "the others were left alone");
}

pub(super) async fn the_end_of_a_run_is_heard(bench: &Bench) {
    let ends = [
        done("{}"),
        End::Dead(cause(Class::Unavailable)),
        End::Retry { at: at(1), cause: cause(Class::Unavailable), counts: true },
        done("forgotten later"),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let event = bench.event_for(&format!("run{number}"), &[RUNS], START);
        let id = event.id;
        assert_eq!(bench.accept_one(event, START).await, Verdict::Accepted);
        let lease = bench.lease_event(RUNS, id, START).await.unwrap().lease;
        let store = Arc::clone(&bench.store);
        let changed = store.changed();
        assert_eq!(bench.settle(&lease, end, START).await, Settled::Ok);
        assert!(tokio::time::timeout(Duration::from_secs(20), changed).await.is_ok());
    }
    let again = bench.accept_one(bench.event_for("run0", &[RUNS], at(1)), at(1)).await;
    assert!(matches!(again, Verdict::Duplicate { state: State::Done, .. }), "{again:?}");
    let again = bench.accept_one(bench.event_for("run1", &[RUNS], at(1)), at(1)).await;
    assert!(matches!(again, Verdict::Duplicate { state: State::Ready, revived: true, .. }), "{again:?}");
    // Done runs are forgotten as all events are, and their keys are free then.
    let month = at(31 * 24 * 3_600);
    while bench.sweep(100, month).await.more {}
    let fresh = bench.event_for("run0", &[RUNS], month);
    assert_eq!(bench.accept_one(fresh, month).await, Verdict::Accepted);
}
