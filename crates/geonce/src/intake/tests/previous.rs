//! A change of policy while events keep coming: gateways with the old and with the new one know each other's events, for as
//! long as a store remembers them.

use super::{START, words};
use crate::clock::{Clock, ManualClock};
use crate::intake::{Arrival, Intake, Source};
use crate::store::{self, Access, Options, Store, open_given};
use geonce_key::policy::{Field, Identity};
use geonce_key::split::Format;
use geonce_key::{Pointer, Policy};
use std::sync::Arc;
use std::time::Duration;

fn before() -> Policy {
    Policy { scope: "drones".to_owned(), ..Policy::default() }
}

/// Another grid and another identity: every key is another one.
fn after() -> Policy {
    let field = Field::required(Pointer::parse("/properties/n").unwrap());
    Policy { precision: 6, identity: Identity::Fields(vec![field]), previous: Some(Box::new(before())), ..before() }
}

struct Gateway {
    intake: Intake,
    source: Arc<Source>,
}

impl Gateway {
    /// Without a sink events are done at once, and forgotten after the window.
    fn new(store: &Arc<dyn Store>, policy: Policy, clock: &Arc<ManualClock>) -> Gateway {
        let intake = Intake::new(Arc::clone(store), clock.clone());
        Gateway { intake, source: Arc::new(Source::new("drones", policy, &[]).unwrap()) }
    }

    async fn send(&self, n: u32) -> &'static str {
        let body = format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13.{n},52.5]}},"properties":{{"n":{n}}}}}"#
        );
        let arrival = Arrival { body: body.into_bytes().into(), format: Format::Json, ..Arrival::default() };
        words(&self.intake.receive(&self.source, arrival).await.unwrap())[0]
    }
}

async fn sweep(store: &Arc<dyn Store>, clock: &ManualClock) {
    while store.sweep(1_000, clock.now()).await.unwrap().more {}
}

/// After the window, what was known is not: neither by its old key nor by its new one.
async fn forgets(store: &Arc<dyn Store>, clock: &ManualClock, gateway: &Gateway) {
    clock.advance(Options::default().window + Duration::from_hours(25));
    sweep(store, clock).await;
    assert_eq!((gateway.send(1).await, gateway.send(2).await), ("accepted", "accepted"));
}

#[tokio::test]
async fn a_gateway_that_takes_over_knows_the_events_of_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START));
    let open = || store::open("sqlite:geonce.db", &Options::default(), Access::Gateway, folder.path()).unwrap();
    let store = open();
    assert_eq!(Gateway::new(&store, before(), &clock).send(1).await, "accepted");
    store.close().await.unwrap();
    let store = open();
    let new = Gateway::new(&store, after(), &clock);
    assert_eq!((new.send(1).await, new.send(2).await), ("duplicate", "accepted"));
    store.close().await.unwrap();
    // The change is taken back: what came under the new policy is known under the old one.
    let store = open();
    assert_eq!(Gateway::new(&store, before(), &clock).send(2).await, "duplicate");
    let alone = Policy { previous: None, ..after() };
    assert_eq!(Gateway::new(&store, alone, &clock).send(1).await, "accepted", "this is what previous is for");
    forgets(&store, &clock, &Gateway::new(&store, after(), &clock)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_of_both_policies_know_each_others_events() {
    let url = geonce_services::Postgres::shared().database();
    let clock = Arc::new(ManualClock::new(START));
    let stores =
        tokio::task::spawn_blocking(move || [0, 1].map(|_| open_given(&url, &Options::default()))).await.unwrap();
    let old = Gateway::new(&stores[0], before(), &clock);
    let new = Gateway::new(&stores[1], after(), &clock);
    assert_eq!((old.send(1).await, new.send(1).await), ("accepted", "duplicate"));
    assert_eq!((new.send(2).await, old.send(2).await), ("accepted", "duplicate"));
    // At the same time: one of them has each.
    for n in 3..20 {
        let (first, second) = tokio::join!(old.send(n), new.send(n));
        let mut answers = [first, second];
        answers.sort_unstable();
        assert_eq!(answers, ["accepted", "duplicate"], "{n}");
    }
    forgets(&stores[1], &clock, &new).await;
}
