//! Entities that are deleted: gone, remembered, and not brought back by what comes late.

use super::{APPLIED, Maker, Mode, Place, STALE, assert_rows, write};
use crate::event::Class;
use crate::sink::{Outgoing, Sink, Written};
use std::sync::Arc;

const DECLARED: Mode = Mode::Upsert { arrival: false };

pub(super) async fn cases<P: Place>(make: impl Fn() -> P) {
    a_deleted_entity_has_no_row_and_stays_deleted(&make()).await;
    a_batch_with_deletions_ends_as_its_events_one_by_one_do(&make()).await;
    what_was_never_there_is_deleted_all_the_same(&make()).await;
    a_deletion_needs_nothing_but_its_entity(&make()).await;
    the_last_arrival_decides_whether_an_entity_is_there(&make()).await;
    racing_deletions_end_at_the_highest_version(&make()).await;
    among_events_a_deletion_is_a_row_like_any_other(&make()).await;
}

fn gone(maker: &Maker, name: &str, version: u32) -> Outgoing {
    maker.event(&format!(
        r#"{{"type":"Feature","geometry":null,"properties":{{"name":"{name}","version":{version},"deleted":true}}}}"#
    ))
}

fn there(maker: &Maker, name: &str, version: u32) -> Outgoing {
    maker.entity(name, &version.to_string(), version)
}

fn is_conflict(written: &Written) -> bool {
    matches!(written, Written::Dead(cause) if cause.class == Class::Conflict && cause.code == "conflict")
}

async fn a_deleted_entity_has_no_row_and_stays_deleted<P: Place>(place: &P) {
    let maker = Maker::new();
    let sink = place.open(DECLARED).await.unwrap();
    let (first, other) = (there(&maker, "a", 1), there(&maker, "b", 1));
    assert_eq!(write(&sink, &[first.clone(), other.clone()]).await, [APPLIED, APPLIED]);
    let deletion = gone(&maker, "a", 5);
    assert_eq!(write(&sink, std::slice::from_ref(&deletion)).await, [APPLIED]);
    assert_rows(place, std::slice::from_ref(&other)).await;
    drop(sink);
    let sink = place.open(DECLARED).await.unwrap();
    // Late ones do not bring it back, nor does what was decided before.
    let late = [there(&maker, "a", 4), gone(&maker, "a", 3), first, deletion];
    assert_eq!(write(&sink, &late).await, [STALE, STALE, APPLIED, APPLIED]);
    let written = write(&sink, &[there(&maker, "a", 5)]).await;
    assert!(is_conflict(&written[0]), "{written:?}");
    assert_rows(place, std::slice::from_ref(&other)).await;
    let back = there(&maker, "a", 6);
    assert_eq!(write(&sink, std::slice::from_ref(&back)).await, [APPLIED]);
    assert_rows(place, &[other, back.clone()]).await;
    let written = write(&sink, &[gone(&maker, "a", 6), gone(&maker, "a", 7)]).await;
    assert!(is_conflict(&written[0]) && written[1] == APPLIED, "{written:?}");
}

async fn a_batch_with_deletions_ends_as_its_events_one_by_one_do<P: Place>(place: &P) {
    let maker = Maker::new();
    let sink = place.open(DECLARED).await.unwrap();
    assert_eq!(write(&sink, &[there(&maker, "b", 1), there(&maker, "d", 1)]).await, [APPLIED, APPLIED]);
    let batch = [
        there(&maker, "a", 1),
        gone(&maker, "a", 2),
        gone(&maker, "b", 2),
        there(&maker, "b", 3),
        gone(&maker, "c", 2),
        there(&maker, "c", 1),
        gone(&maker, "d", 2),
        there(&maker, "e", 1),
    ];
    let expected = [APPLIED, APPLIED, APPLIED, APPLIED, APPLIED, STALE, APPLIED, APPLIED];
    assert_eq!(write(&sink, &batch).await, expected);
    assert_eq!(write(&sink, &batch).await, expected, "and nothing changes when it is written again");
    assert_rows(place, &[batch[3].clone(), batch[7].clone()]).await;
}

async fn what_was_never_there_is_deleted_all_the_same<P: Place>(place: &P) {
    let maker = Maker::new();
    let sink = place.open(DECLARED).await.unwrap();
    assert_eq!(write(&sink, &[gone(&maker, "a", 5)]).await, [APPLIED]);
    assert_eq!(write(&sink, &[there(&maker, "a", 4)]).await, [STALE]);
    assert_rows(place, &[]).await;
    let back = there(&maker, "a", 6);
    assert_eq!(write(&sink, std::slice::from_ref(&back)).await, [APPLIED]);
    assert_rows(place, &[back]).await;
}

async fn a_deletion_needs_nothing_but_its_entity<P: Place>(place: &P) {
    let maker = Maker::new();
    let sink = place.open(DECLARED).await.unwrap();
    assert_eq!(write(&sink, &[there(&maker, "a", 1)]).await, [APPLIED]);
    // A system nobody knows: no row could be made of it, and none is.
    let mut deletion = maker.event(
        r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1,1]},"properties":{"name":"a","version":2,"deleted":true}}"#,
    );
    deletion.feature.crs = 9_999_999;
    assert_eq!(write(&sink, &[deletion]).await, [APPLIED]);
    assert_rows(place, &[]).await;
}

async fn the_last_arrival_decides_whether_an_entity_is_there<P: Place>(place: &P) {
    let maker = Maker::new();
    let sink = place.open(Mode::Upsert { arrival: true }).await.unwrap();
    let event = |x: u32, deleted: bool| {
        maker.event(&format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[{x},0]}},"properties":{{"name":"a","deleted":{deleted}}}}}"#
        ))
    };
    assert_eq!(write(&sink, &[event(1, false), event(2, true)]).await, [APPLIED, APPLIED]);
    assert_rows(place, &[]).await;
    let back = event(3, false);
    assert_eq!(write(&sink, &[event(2, true), back.clone()]).await, [APPLIED, APPLIED]);
    assert_rows(place, &[back]).await;
}

async fn racing_deletions_end_at_the_highest_version<P: Place>(place: &P) {
    let maker = Maker::new();
    let sink = place.open(DECLARED).await.unwrap();
    // Even versions delete: "even" ends deleted, "odd" ends there.
    let event = |name, version: u32| match version % 2 {
        0 => gone(&maker, name, version),
        _ => there(&maker, name, version),
    };
    let mut events: Vec<Outgoing> = (1..=40).map(|version| event("even", version)).collect();
    events.extend((1..=41).map(|version| event("odd", version)));
    let last = events[80].clone();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let (sink, mut events): (Arc<dyn Sink>, _) = (Arc::clone(&sink), events.clone());
        events.rotate_left(writer * 23);
        tasks.spawn(async move {
            for batch in events.chunks(5) {
                let written = write(&sink, batch).await;
                assert!(written.iter().all(|one| *one == APPLIED || *one == STALE), "{written:?}");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_rows(place, &[last]).await;
}

async fn among_events_a_deletion_is_a_row_like_any_other<P: Place>(place: &P) {
    let maker = Maker::new();
    let sink = place.open(Mode::Append).await.unwrap();
    let deletion = maker.event(
        r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1,1]},"properties":{"name":"a","version":2,"deleted":true}}"#,
    );
    let events = [there(&maker, "a", 1), deletion];
    assert_eq!(write(&sink, &events).await, [APPLIED, APPLIED]);
    assert_rows(place, &events).await;
}
