//! Events that go into the rows of others: each once, with their lineage, whatever became of the row.

use super::{APPLIED, Maker, Mode, Outcome, Outgoing, Place, key, write};
use crate::event::Class;
use crate::sink::{Merge, Sink, Written};
use crate::store::Answer;
use std::sync::Arc;

/// A row of points.
#[derive(Clone, Debug, PartialEq)]
pub struct RowPoint {
    /// Its key, as text.
    pub key: String,
    /// Its event, as text.
    pub event: String,
    /// Where it is.
    pub at: [f64; 2],
    /// Its property `n`.
    pub n: i64,
}

/// A place whose rows are points, and take others in.
pub trait Layer: Place {
    /// The rows, in the order of their numbers.
    fn points(&self) -> Answer<'_, Vec<RowPoint>>;

    /// Which key went into which, as bytes.
    fn lineage(&self) -> Answer<'_, Vec<([u8; 16], [u8; 16])>>;

    /// Does what another program does to the layer `zones`, with statements that every database knows.
    fn edit(&self, sql: &str);
}

/// Everything a sink promises whose rows take others in.
pub async fn merging<L: Layer>(make: impl Fn() -> L) {
    the_later_event_takes_the_row_over(&make()).await;
    a_mean_is_that_of_all_events_of_a_row(&make()).await;
    merging_twice_is_merging_once(&make()).await;
    a_row_that_is_gone_is_not_made_again(&make()).await;
    a_copy_of_a_row_is_not_touched(&make()).await;
    what_went_into_a_row_takes_others_there(&make()).await;
    writers_beside_each_other_take_every_point_in(&make()).await;
    layers_of_entities_take_nothing_in(&make()).await;
}

fn point(maker: &Maker, x: f64, y: f64, n: usize) -> Outgoing {
    maker.event(&format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[{x},{y}]}},"properties":{{"n":{n}}}}}"#
    ))
}

fn into(mut event: Outgoing, row: &Outgoing, mean: bool) -> Outgoing {
    event.merge = Some(Merge { into: row.key.key(), mean });
    event
}

/// The row that an event made, with what others brought into it.
fn row(first: &Outgoing, at: [f64; 2], n: i64) -> RowPoint {
    RowPoint { key: key(first), event: first.event.to_string(), at, n }
}

async fn assert_points<L: Layer>(place: &L, expected: &[RowPoint]) {
    let found = place.points().await.unwrap();
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!((&found.key, &found.event, found.n), (&expected.key, &expected.event, expected.n));
        let off = [0, 1].map(|axis| (found.at[axis] - expected.at[axis]).abs());
        assert!(off.iter().all(|off| *off < 1e-9), "{found:?} {expected:?}");
    }
    place.rows().await.unwrap();
}

async fn assert_lineage<L: Layer>(place: &L, expected: &[(&Outgoing, &Outgoing)]) {
    let mut found = place.lineage().await.unwrap();
    let mut expected: Vec<_> = expected.iter().map(|(from, into)| (from.key.key(), into.key.key())).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

async fn the_later_event_takes_the_row_over<L: Layer>(place: &L) {
    let maker = Maker::new();
    let sink = place.open(Mode::Append).await.unwrap();
    let (first, other) = (point(&maker, 1.0, 1.0, 1), point(&maker, 9.0, 9.0, 9));
    assert_eq!(write(&sink, &[first.clone(), other.clone()]).await, [APPLIED, APPLIED]);
    let second = into(point(&maker, 1.5, 2.0, 2), &first, false);
    let alone = point(&maker, 7.0, 7.0, 7);
    assert_eq!(write(&sink, &[second.clone(), alone.clone()]).await, [APPLIED, APPLIED]);
    let rows = [row(&first, [1.5, 2.0], 2), row(&other, [9.0, 9.0], 9), row(&alone, [7.0, 7.0], 7)];
    assert_points(place, &rows).await;
    assert_lineage(place, &[(&second, &first)]).await;
    assert_eq!(sink.proofs(vec![second.key]).await.unwrap(), Some(vec![true]));
}

async fn a_mean_is_that_of_all_events_of_a_row<L: Layer>(place: &L) {
    let maker = Maker::new();
    let sink = place.open(Mode::Append).await.unwrap();
    let first = point(&maker, 0.0, 0.0, 1);
    assert_eq!(write(&sink, std::slice::from_ref(&first)).await, [APPLIED]);
    let second = into(point(&maker, 2.0, 4.0, 2), &first, true);
    let third = into(point(&maker, 7.0, -1.0, 3), &first, true);
    let fourth = into(point(&maker, 3.0, 5.0, 4), &first, true);
    // One by one, and two in one go, over a restart.
    assert_eq!(write(&sink, std::slice::from_ref(&second)).await, [APPLIED]);
    assert_points(place, &[row(&first, [1.0, 2.0], 2)]).await;
    drop(sink);
    let sink = place.open(Mode::Append).await.unwrap();
    assert_eq!(write(&sink, &[third.clone(), fourth.clone()]).await, [APPLIED, APPLIED]);
    assert_points(place, &[row(&first, [3.0, 2.0], 4)]).await;
    assert_lineage(place, &[(&second, &first), (&third, &first), (&fourth, &first)]).await;
}

async fn merging_twice_is_merging_once<L: Layer>(place: &L) {
    let maker = Maker::new();
    let first = point(&maker, 0.0, 0.0, 1);
    let second = into(point(&maker, 2.0, 4.0, 2), &first, true);
    let third = into(point(&maker, 1.0, 2.0, 3), &first, true);
    for _ in 0..3 {
        let sink = place.open(Mode::Append).await.unwrap();
        assert_eq!(write(&sink, std::slice::from_ref(&first)).await, [APPLIED]);
        assert_eq!(write(&sink, &[second.clone(), second.clone()]).await, [APPLIED, APPLIED]);
    }
    assert_points(place, &[row(&first, [1.0, 2.0], 2)]).await;
    // Among others that are new.
    let sink = place.open(Mode::Append).await.unwrap();
    assert_eq!(write(&sink, &[second.clone(), third.clone(), first.clone()]).await, [APPLIED; 3]);
    assert_points(place, &[row(&first, [1.0, 2.0], 3)]).await;
    assert_lineage(place, &[(&second, &first), (&third, &first)]).await;
}

async fn a_row_that_is_gone_is_not_made_again<L: Layer>(place: &L) {
    let maker = Maker::new();
    let sink = place.open(Mode::Append).await.unwrap();
    let (first, other) = (point(&maker, 0.0, 0.0, 1), point(&maker, 5.0, 5.0, 5));
    assert_eq!(write(&sink, &[first.clone(), other.clone()]).await, [APPLIED, APPLIED]);
    place.edit(&format!("DELETE FROM zones WHERE geonce_key = '{}'", key(&first)));
    let second = into(point(&maker, 1.0, 1.0, 2), &first, true);
    for _ in 0..2 {
        assert_eq!(write(&sink, std::slice::from_ref(&second)).await, [APPLIED]);
    }
    assert_points(place, &[row(&other, [5.0, 5.0], 5)]).await;
    assert_lineage(place, &[(&second, &first)]).await;
    assert_eq!(sink.proofs(vec![second.key]).await.unwrap(), Some(vec![true]));
}

async fn a_copy_of_a_row_is_not_touched<L: Layer>(place: &L) {
    let maker = Maker::new();
    let sink = place.open(Mode::Append).await.unwrap();
    let first = point(&maker, 0.0, 0.0, 1);
    assert_eq!(write(&sink, std::slice::from_ref(&first)).await, [APPLIED]);
    place.edit(
        "INSERT INTO zones (geom, geonce_key, geonce_event, n) SELECT geom, geonce_key, geonce_event, n FROM zones",
    );
    let second = into(point(&maker, 2.0, 2.0, 2), &first, false);
    assert_eq!(write(&sink, &[second]).await, [APPLIED]);
    assert_points(place, &[row(&first, [2.0, 2.0], 2), row(&first, [0.0, 0.0], 1)]).await;
}

async fn what_went_into_a_row_takes_others_there<L: Layer>(place: &L) {
    let maker = Maker::new();
    let sink = place.open(Mode::Append).await.unwrap();
    let first = point(&maker, 0.0, 0.0, 1);
    let second = into(point(&maker, 1.0, 1.0, 2), &first, false);
    let third = into(point(&maker, 2.0, 2.0, 3), &second, false);
    let fourth = into(point(&maker, 3.0, 3.0, 4), &third, false);
    // A row, what goes into it, and what goes after that, in one batch.
    assert_eq!(write(&sink, &[first.clone(), second.clone(), third.clone()]).await, [APPLIED; 3]);
    assert_points(place, &[row(&first, [2.0, 2.0], 3)]).await;
    assert_eq!(write(&sink, std::slice::from_ref(&fourth)).await, [APPLIED]);
    assert_points(place, &[row(&first, [3.0, 3.0], 4)]).await;
    assert_lineage(place, &[(&second, &first), (&third, &first), (&fourth, &first)]).await;
}

async fn writers_beside_each_other_take_every_point_in<L: Layer>(place: &L) {
    let maker = Maker::new();
    let sink = place.open(Mode::Append).await.unwrap();
    let first = point(&maker, 0.0, 0.0, 0);
    assert_eq!(write(&sink, std::slice::from_ref(&first)).await, [APPLIED]);
    // From 0 to 60, in steps of one: the mean is 30.
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let events: Vec<Outgoing> = (1..=60).map(|n| into(point(&maker, n as f64, 0.0, n), &first, true)).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let (sink, mut events): (Arc<dyn Sink>, _) = (Arc::clone(&sink), events.clone());
        events.rotate_left(writer * 15);
        tasks.spawn(async move {
            for batch in events.chunks(7) {
                assert!(write(&sink, batch).await.iter().all(|written| *written == APPLIED));
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let found = place.points().await.unwrap();
    assert!(found.len() == 1 && (found[0].at[0] - 30.0).abs() < 1e-6, "{found:?}");
    assert_eq!(place.lineage().await.unwrap().len(), 60);
}

async fn layers_of_entities_take_nothing_in<L: Layer>(place: &L) {
    let maker = Maker::new();
    let sink = place.open(Mode::Upsert { arrival: false }).await.unwrap();
    let first = maker.entity("a", "1", 1);
    let second = into(maker.entity("b", "1", 1), &first, false);
    let written = write(&sink, &[first, second]).await;
    assert_eq!(written[0], Written::Done(Outcome::Applied));
    assert!(matches!(&written[1], Written::Dead(cause) if cause.class == Class::Schema && cause.code == "merge"));
}
