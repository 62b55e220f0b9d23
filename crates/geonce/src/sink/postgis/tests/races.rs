//! Gateways beside each other, and connections that end at the wrong moment.

use super::{POINT, Schema, all_applied, feature};
use crate::error::Kind;
use crate::event::Outcome;
use crate::sink::conformance::{Maker, Place as _};
use crate::sink::{Isolation, Mode, Options, Outgoing, Sink, Written};
use geonce_services::{Fault, Postgres, Proxy};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Several gateways write the same batches, each in an order of its own.
async fn race(sinks: Vec<Arc<dyn Sink>>, events: &[Outgoing], batch: usize) -> Vec<Vec<Written>> {
    let mut tasks = tokio::task::JoinSet::new();
    for (gateway, sink) in sinks.into_iter().enumerate() {
        let mut events = events.to_vec();
        let shift = gateway * events.len() / 4;
        events.rotate_left(shift);
        if gateway % 2 == 1 {
            events.reverse();
        }
        tasks.spawn(async move {
            let mut answers = Vec::new();
            for batch in events.chunks(batch) {
                answers.extend(sink.write(batch.to_vec()).await.unwrap());
            }
            answers
        });
    }
    let mut answers = Vec::new();
    while let Some(done) = tasks.join_next().await {
        answers.push(done.unwrap());
    }
    answers
}

fn entity(maker: &Maker, name: usize, version: usize) -> Outgoing {
    feature(maker, POINT, &format!(r#""properties":{{"name":"e{name}","version":{version}}}"#))
}

#[tokio::test]
async fn gateways_that_write_the_same_events_write_each_once() {
    let schema = Schema::alone();
    let maker = Maker::new();
    let events: Vec<Outgoing> = (0..1_000).map(|n| maker.point(n)).collect();
    let sinks = (0..4).map(|_| schema.sink(&Options::default())).collect();
    let answers = race(sinks, &events, 100).await;
    assert!(answers.iter().all(|answers| all_applied(answers)));
    let rows = schema.rows().await.unwrap();
    assert_eq!((rows.len(), rows.iter().collect::<BTreeSet<_>>().len()), (1_000, 1_000));
    assert_eq!(schema.sql("SELECT count(*) FROM geonce_applied"), "1000");
    assert_eq!(schema.deadlocks().await, "0", "nobody waits in a circle");
}

#[tokio::test]
async fn gateways_that_meet_over_one_batch_do_not_wait_in_a_circle() {
    let schema = Schema::alone();
    let maker = Maker::new();
    for mode in [Mode::Append, Mode::Upsert { arrival: true }] {
        let layer = Some(if mode == Mode::Append { "events" } else { "entities" }.to_owned());
        let options = Options { layer, mode, ..Options::default() };
        let (one, two) = (schema.sink(&options), schema.sink(&options));
        one.write(vec![maker.point(0)]).await.unwrap();
        two.check().await.unwrap();
        // Slow enough that each is in the middle when the other comes.
        schema.sql(
            "CREATE OR REPLACE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.001); RETURN NEW; END';
             CREATE OR REPLACE TRIGGER slow BEFORE INSERT ON geonce_applied FOR EACH ROW EXECUTE FUNCTION slow();
             CREATE OR REPLACE TRIGGER slow BEFORE INSERT ON geonce_entity FOR EACH ROW EXECUTE FUNCTION slow()",
        );
        for round in 0..3 {
            let forward: Vec<Outgoing> = (1..=100).map(|n| maker.point(round * 100 + n)).collect();
            let backward: Vec<Outgoing> = forward.iter().rev().cloned().collect();
            let (first, second) = tokio::join!(one.write(forward), two.write(backward));
            assert!(all_applied(&first.unwrap()) && all_applied(&second.unwrap()));
        }
    }
    assert_eq!(schema.sql("SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM entities)"), "301|301");
    assert_eq!(schema.deadlocks().await, "0");
}

#[tokio::test]
async fn gateways_that_write_the_same_entities_end_at_the_latest_versions() {
    let schema = Schema::alone();
    let maker = Maker::new();
    let events: Vec<Outgoing> = (0..600).map(|n| entity(&maker, n % 60, n / 60)).collect();
    let options = Options { mode: Mode::Upsert { arrival: false }, ..Options::default() };
    let sinks = (0..4).map(|_| schema.sink(&options)).collect();
    for answers in race(sinks, &events, 40).await {
        let right = |written: &Written| matches!(written, Written::Done(Outcome::Applied | Outcome::Stale));
        assert!(answers.iter().all(right), "{answers:?}");
    }
    assert_eq!(schema.sql("SELECT count(*), count(DISTINCT name), min(version), max(version) FROM zones"), "60|60|9|9");
    assert_eq!(schema.sql("SELECT count(*), min(version), max(version) FROM geonce_entity"), "60|9|9");
    assert_eq!(schema.sql("SELECT count(*) FROM geonce_applied"), "600");
    assert_eq!(schema.deadlocks().await, "0", "nobody waits in a circle");
}

#[tokio::test]
async fn stricter_isolation_repeats_what_met_and_writes_once_too() {
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let schema = Schema::prepared(
            "CREATE TABLE levels (level text); CREATE TABLE zones (fid bigserial PRIMARY KEY, geom geometry(Point, 4326));
             CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               EXECUTE format('INSERT INTO %I.levels VALUES (current_setting(''transaction_isolation''))', TG_TABLE_SCHEMA);
               RETURN NULL; END $$;
             CREATE TRIGGER note AFTER INSERT ON zones FOR EACH STATEMENT EXECUTE FUNCTION note()",
        );
        let maker = Maker::new();
        let events: Vec<Outgoing> = (0..60).map(|n| entity(&maker, n % 20, n / 20)).collect();
        let options = Options { mode: Mode::Upsert { arrival: false }, isolation, ..Options::default() };
        let mut tasks = tokio::task::JoinSet::new();
        for gateway in 0..2 {
            let (sink, mut events) = (schema.sink(&options), events.clone());
            events.rotate_left(gateway * 30);
            tasks.spawn(async move {
                for batch in events.chunks(20) {
                    // Those who meet too often are told to come back, as delivery does.
                    loop {
                        match sink.write(batch.to_vec()).await {
                            Ok(_) => break,
                            Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "{error}"),
                        }
                    }
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        assert_eq!(schema.sql("SELECT count(*), min(version), max(version) FROM zones"), "20|2|2");
        assert_eq!(schema.sql("SELECT DISTINCT level FROM levels"), isolation.as_str());
    }
}

#[tokio::test]
async fn commits_whose_answer_is_lost_are_repeated_without_harm() {
    for mode in [Mode::Append, Mode::Upsert { arrival: false }] {
        let proxy = Proxy::start(Postgres::shared().port());
        let schema = Schema::through_port(proxy.port());
        let maker = Maker::new();
        let sink = schema.sink(&Options { mode, ..Options::default() });
        sink.check().await.unwrap();
        proxy.set(Fault::Swallow { bytes: b"COMMIT\0", in_n: 2 });
        let events: Vec<Outgoing> = (0..300).map(|n| entity(&maker, n % 100, n / 100)).collect();
        for batch in events.chunks(10) {
            assert!(all_applied(&sink.write(batch.to_vec()).await.unwrap()));
        }
        assert!(proxy.swallowed() >= 20, "{}", proxy.swallowed());
        proxy.set(Fault::None);
        let keys: BTreeSet<String> = schema.rows().await.unwrap().into_iter().collect();
        let rows = if mode == Mode::Append { 300 } else { 100 };
        assert_eq!((keys.len(), schema.rows().await.unwrap().len()), (rows, rows));
        assert_eq!(schema.sql("SELECT count(*) FROM geonce_applied"), "300");
    }
}

#[tokio::test]
async fn a_server_that_is_gone_is_told_as_such_and_found_again() {
    let proxy = Proxy::start(Postgres::shared().port());
    let schema = Schema::through_port(proxy.port());
    let maker = Maker::new();
    let sink = schema.sink(&Options::default());
    proxy.set(Fault::Reset);
    assert_eq!(sink.check().await.unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(sink.write(vec![maker.point(1)]).await.unwrap_err().kind(), Kind::Unavailable);
    proxy.set(Fault::None);
    assert!(all_applied(&sink.write(vec![maker.point(1)]).await.unwrap()));
    assert_eq!(schema.rows().await.unwrap().len(), 1);
}

#[tokio::test]
async fn columns_that_two_gateways_make_at_once_are_made_once() {
    let schema = Schema::new();
    let maker = Maker::new();
    let mut tasks = tokio::task::JoinSet::new();
    for gateway in 0..4 {
        let sink = schema.sink(&Options::default());
        let events: Vec<Outgoing> = (0..10)
            .map(|n| feature(&maker, POINT, &format!(r#""properties":{{"who":{gateway},"p{n}":{n},"q{n}":{n}.5}}"#)))
            .collect();
        tasks.spawn(async move {
            for event in events {
                assert!(all_applied(&sink.write(vec![event]).await.unwrap()));
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(schema.rows().await.unwrap().len(), 40);
    assert_eq!(schema.sql("SELECT count(*) FROM geonce_column"), "21");
    assert_eq!(schema.sql("SELECT sum(p3), sum(q3) FROM zones"), "12|14");
}
