//! What can be done: dead events purged and replayed, by plan and run.

use super::{BROKEN, Gate};
use serde_json::{Value, json};

impl Gate {
    /// So many dead events; their ids.
    async fn broken(&self, count: usize) -> Vec<String> {
        let one = |i: usize| format!("{}\n", BROKEN.replace("[0,1]", &format!("[0,{}]", i + 1)));
        let lines: String = (0..count).map(one).collect();
        let sent = self.send(&lines).await;
        sent["features"].as_array().unwrap().iter().map(|one| one["event"].as_str().unwrap().to_owned()).collect()
    }

    /// Plans something; the job.
    async fn plan(&self, path: &str, body: Value) -> Value {
        let reply = self.post(path, body).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        let job = reply.json();
        let place = format!("/api/v1{path}/{}", job["id"].as_str().unwrap());
        assert_eq!(reply.header("location"), Some(place.as_str()));
        assert_eq!((&job["state"], &job["done"]), (&json!("planned"), &json!(0)));
        job
    }
}

fn path(job: &Value, below: &str) -> String {
    format!("/{}s/{}{below}", job["kind"].as_str().unwrap(), job["id"].as_str().unwrap())
}

#[tokio::test]
async fn one_dead_event_is_purged_and_nothing_else() {
    let gate = Gate::start().await;
    let ids = gate.broken(2).await;
    let waiting = gate.send("{\"type\":\"Point\",\"coordinates\":[1,2]}\n").await;
    let waiting = waiting["features"][0]["event"].as_str().unwrap().to_owned();
    let gone = gate.ask("DELETE", &format!("/events/{}", ids[0]), None).await;
    assert_eq!((gone.status, gone.body.as_str()), (204, ""));
    gate.ask("DELETE", &format!("/events/{}", ids[0]), None).await.is_problem(404, "event_unknown");
    gate.ask("DELETE", &format!("/events/{waiting}"), None).await.is_problem(409, "not_dead");
    assert_eq!(gate.get("/events").await["events"].as_array().unwrap().len(), 2);
    assert_eq!(gate.store.audit().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_purge_is_planned_then_run_and_takes_what_was_planned() {
    let gate = Gate::start().await;
    let ids = gate.broken(30).await;
    let plan = gate.plan("/purges", json!({ "filter": { "code": "self_intersection" } })).await;
    assert_eq!((&plan["planned"], &plan["groups"][0]["events"]), (&json!(30), &json!(30)));
    assert_eq!(gate.get("/dead").await["events"], 30, "a plan changes nothing");
    // What dies after the plan is not part of it.
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    gate.send(&format!("{}\n", BROKEN.replace("[0,1]", "[0,77]"))).await;
    let run = gate.ask("POST", &path(&plan, "/run"), None).await;
    assert_eq!(run.status, 202, "{run:?}");
    let job = gate.ended(&path(&plan, "")).await;
    assert_eq!((&job["state"], &job["done"]), (&json!("done"), &json!(30)));
    gate.ask("POST", &path(&plan, "/run"), None).await.is_problem(409, "job_ended");
    gate.ask("GET", &format!("/events/{}", ids[0]), None).await.is_problem(404, "event_unknown");
    assert_eq!(gate.get("/events?state=dead").await["events"].as_array().unwrap().len(), 1);
    assert_eq!(gate.get("/purges").await["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(gate.get("/replays").await["jobs"], json!([]));
}

#[tokio::test]
async fn a_plan_that_was_taken_back_is_not_run() {
    let gate = Gate::start().await;
    let ids = gate.broken(3).await;
    let plan = gate.plan("/purges", json!({ "filter": { "events": [ids[0], ids[1], ids[0]] } })).await;
    assert_eq!(plan["planned"], 2);
    let cancelled = gate.ask("DELETE", &path(&plan, ""), None).await.json();
    assert_eq!(cancelled["state"], "cancelled");
    gate.ask("POST", &path(&plan, "/run"), None).await.is_problem(409, "job_ended");
    assert_eq!(gate.get("/dead").await["events"], 3);
    let unknown = "/replays/job_01JD8Q0000000000000000000Z";
    gate.ask("GET", unknown, None).await.is_problem(404, "job_unknown");
    let elsewhere = path(&plan, "").replace("purges", "replays");
    gate.ask("GET", &elsewhere, None).await.is_problem(404, "job_unknown");
}

#[tokio::test]
async fn filters_that_mean_nothing_or_too_much_are_refused() {
    let gate = Gate::start().await;
    for (filter, pointer) in [
        (json!({}), "/filter"),
        (json!({ "all": false }), "/filter"),
        (json!({ "events": [] }), "/filter"),
        (json!({ "events": ["evt_x"] }), "/filter/events/0"),
        (json!({ "events": vec!["evt_01JD8Q0000000000000000000Z"; 1_001] }), "/filter/events"),
        (json!({ "since": "yesterday" }), "/filter/since"),
        (json!({ "source": "\u{0}" }), "/filter/source"),
    ] {
        for path in ["/purges", "/replays"] {
            let reply = gate.post(path, json!({ "filter": filter })).await;
            reply.is_problem(400, "body_invalid");
            assert_eq!(reply.json()["pointer"], pointer, "{filter}");
        }
    }
    let plan = gate.plan("/purges", json!({ "filter": { "all": true } })).await;
    assert_eq!(plan["planned"], 0);
}
