//! What can be done: dead events purged and replayed, by plan and run.

use super::{BROKEN, Gate};
use geonce::clock::Stopwatch;
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
    assert_eq!(gate.get("/events?source=drones").await["events"].as_array().unwrap().len(), 2);
    let entry = &gate.get("/audit").await["entries"][0];
    assert_eq!((&entry["asked"]["action"], &entry["asked"]["asked"]["first"][0]), (&json!("purge"), &json!(ids[0])));
    assert_eq!((&entry["asked"]["who"], &entry["result"]["purged"]), (&json!("api from 127.0.0.1"), &json!(1)));
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
        (json!({ "events": [] }), "/filter/events"),
        (json!({ "events": [], "source": "drones" }), "/filter/events"),
        (json!({ "events": ["evt_x"] }), "/filter/events/0"),
        (json!({ "events": vec!["evt_01JD8Q0000000000000000000Z"; 10_001] }), "/filter/events"),
        (json!({ "since": "yesterday" }), "/filter/since"),
        (json!({ "source": "\u{0}" }), "/filter/source"),
    ] {
        for path in ["/purges", "/replays", "/repairs"] {
            let reply = gate.post(path, json!({ "filter": filter })).await;
            reply.is_problem(400, "body_invalid");
            assert_eq!(reply.json()["pointer"], pointer, "{filter}");
        }
    }
    for rate in [json!(0), json!(-1), json!(1e7), json!(5e-324)] {
        let reply = gate.post("/replays", json!({ "filter": { "all": true }, "rate": rate })).await;
        reply.is_problem(400, "body_invalid");
        assert_eq!(reply.json()["pointer"], "/rate");
    }
    for (choices, pointer) in
        [(json!([]), "/choices"), (json!(["grid", "glue"]), "/choices/1"), (json!(["grid", "grid"]), "/choices")]
    {
        let reply = gate.post("/repairs", json!({ "filter": { "all": true }, "choices": choices })).await;
        reply.is_problem(400, "body_invalid");
        assert_eq!(reply.json()["pointer"], pointer, "{choices}");
    }
    let plan = gate.plan("/purges", json!({ "filter": { "all": true } })).await;
    assert_eq!(plan["planned"], 0);
}

#[tokio::test]
async fn a_replay_goes_at_its_rate_can_be_cancelled_and_does_the_rest_later() {
    let gate = Gate::start().await;
    gate.broken(60).await;
    let plan = gate.plan("/replays", json!({ "filter": { "source": "drones" }, "rate": 50 })).await;
    assert_eq!((&plan["planned"], &plan["left"], &plan["asked"]["rate"]), (&json!(60), &json!(60), &json!(50.0)));
    assert_eq!(gate.ask("POST", &path(&plan, "/run"), None).await.json()["state"], "running");
    assert_eq!(gate.ask("POST", &path(&plan, "/run"), None).await.status, 202, "it runs already");
    while gate.get(&path(&plan, "")).await["done"] == 0 {
        tokio::task::yield_now().await;
    }
    gate.ask("DELETE", &path(&plan, ""), None).await;
    let job = gate.ended(&path(&plan, "")).await;
    let done = job["done"].as_u64().unwrap();
    assert_eq!((&job["state"], &job["summary"]["cancelled"]), (&json!("cancelled"), &json!(true)));
    assert!((1..60).contains(&done), "{job}");
    assert_eq!((&job["left"], &job["summary"]["replayed"]), (&json!(60 - done), &json!(done)));
    let rest = gate.plan("/replays", json!({ "filter": { "all": true } })).await;
    assert_eq!(rest["planned"], 60 - done);
    gate.ask("POST", &path(&rest, "/run"), None).await;
    assert_eq!(gate.ended(&path(&rest, "")).await["state"], "done");
    assert_eq!(gate.get("/events?source=drones&state=dead").await["events"], json!([]));
    let entries = gate.get("/audit?limit=1").await;
    assert_eq!(entries["entries"][0]["result"]["replayed"], 60 - done);
    assert!(entries["next"].is_string(), "there are two");
    assert_eq!(gate.store.audit().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_repair_shows_before_and_after_and_makes_a_new_event_once() {
    let gate = Gate::start().await;
    let ids = gate.broken(3).await;
    let plan = gate.plan("/repairs", json!({ "filter": { "events": [ids[0]] }, "choices": ["grid"] })).await;
    let shown = &plan["repairs"][0];
    assert_eq!(
        (&shown["event"], &shown["valid"], &shown["code"]),
        (&json!(ids[0]), &json!(true), &json!("self_intersection"))
    );
    assert_eq!(shown["before"]["type"], "Polygon");
    assert!(shown["after"].to_string().contains("MultiPolygon") && shown["key"].is_string(), "{shown}");
    gate.ask("POST", &path(&plan, "/run"), None).await;
    let job = gate.ended(&path(&plan, "")).await;
    let result = &job["results"][0];
    assert_eq!((&job["done"], &result["result"], &result["original"]), (&json!(1), &json!("accepted"), &json!(ids[0])));
    let new = gate.get(&format!("/events/{}", result["event"].as_str().unwrap())).await;
    assert_eq!((&new["state"], &new["origin"]["event"], &new["key"]), (&json!("ready"), &json!(ids[0]), &shown["key"]));
    let old = gate.get(&format!("/events/{}", ids[0])).await;
    assert_eq!(
        (&old["state"], &old["outcome"], &old["repaired"]),
        (&json!("done"), &json!("repaired"), &result["event"])
    );

    // Without choices each is mended as is best; what is not dead any more is not planned.
    let plan = gate.plan("/repairs", json!({ "filter": { "all": true }, "rate": 1000 })).await;
    assert_eq!((&plan["planned"], &plan["repairs"][0]["choices"]), (&json!(2), &json!(["grid"])));
    gate.ask("POST", &path(&plan, "/run"), None).await;
    assert_eq!(gate.ended(&path(&plan, "")).await["summary"]["repaired"], 2);
    let books = gate.gateway.store.status().await.unwrap().ledgers["drones"];
    assert_eq!((books.repaired, books.waiting, books.dead, books.difference()), (3, 3, 0, 0));
    assert_eq!(gate.store.audit().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_repair_that_is_followed_tells_everything_and_waits_until_it_is_taken() {
    let gate = Gate::start().await;
    let one = |i: usize| format!("{}\n", BROKEN.replace("[0,1]", &format!("[0,1.{i:03}]")));
    gate.send(&(0..400).map(one).collect::<String>()).await;
    let asked = json!({ "filter": { "all": true }, "follow": true, "who": "ada@survey" });
    let plan = gate.plan("/repairs", asked).await;
    assert_eq!((&plan["planned"], &plan["repairs"], &plan["more_repairs"]), (&json!(400), &json!([]), &json!(400)));
    gate.ask("POST", &path(&plan, "/run"), None).await;
    let running = Stopwatch::start();
    let page = async |from: u64| gate.get(&path(&plan, &format!("?results_from={from}"))).await;
    // It goes on until so many are not taken, and not further.
    let mut job = page(0).await;
    while job["results"].as_array().unwrap().len() < 256 {
        job = page(0).await;
    }
    let held = job["results"].as_array().unwrap().len();
    assert!((256..400).contains(&held), "{held}");
    // In the time that all this took it would have come to the end.
    tokio::time::sleep(running.elapsed()).await;
    assert_eq!(page(0).await["results"].as_array().unwrap().len(), held, "it waits");
    let (mut seen, mut state) = (Vec::new(), job["state"].clone());
    while state == "running" || job["results"].as_array().is_some_and(|results| !results.is_empty()) {
        assert_eq!(job["results_from"], seen.len());
        let results = job["results"].as_array().unwrap();
        for result in results {
            assert_eq!(result["result"], "accepted");
            assert_eq!(result["plan"]["event"], result["original"]);
            assert!(result["plan"]["wkt"]["after"].as_str().unwrap().starts_with("MULTIPOLYGON"), "{result}");
        }
        seen.extend(results.iter().map(|result| result["original"].as_str().unwrap().to_owned()));
        job = page(seen.len() as u64).await;
        state = job["state"].clone();
    }
    assert_eq!((seen.len(), &state, &job["done"]), (400, &json!("done"), &json!(400)));
    assert!(seen.is_sorted_by(|a, b| a < b), "each once, in order");
    let entry = &gate.get("/audit?limit=1").await["entries"][0];
    assert_eq!(entry["asked"]["who"], "ada@survey (api from 127.0.0.1)");
    for (body, pointer) in [(json!({ "who": "" }), "/who"), (json!({ "who": "a\u{1b}b" }), "/who")] {
        let mut body = body;
        body["filter"] = json!({ "all": true });
        let reply = gate.post("/repairs", body).await;
        reply.is_problem(400, "body_invalid");
        assert_eq!(reply.json()["pointer"], pointer);
    }
    for bad in ["x", "-1", "+1", "1000001", ""] {
        gate.ask("GET", &path(&plan, &format!("?results_from={bad}")), None).await.is_problem(400, "query_invalid");
    }
}

#[tokio::test]
async fn what_cannot_be_repaired_is_said_and_left_alone() {
    let gate = Gate::start().await;
    let good = "{\"type\":\"Point\",\"coordinates\":[1,2]}";
    let bad = "{\"type\":\"Point\",\"coordinates\":[]}";
    let sent = gate.send(&format!("{good}\n{bad}\n")).await;
    let plan = gate.plan("/repairs", json!({ "filter": { "all": true } })).await;
    assert_eq!((&plan["planned"], &plan["repairs"][0]["valid"]), (&json!(1), &json!(false)));
    assert!(plan["repairs"][0]["problem"]["code"].is_string());
    gate.ask("POST", &path(&plan, "/run"), None).await;
    let job = gate.ended(&path(&plan, "")).await;
    assert_eq!((&job["state"], &job["done"], &job["skipped"]), (&json!("done"), &json!(0), &json!(1)));
    assert_eq!(job["results"][0]["result"], "cannot");
    let event = gate.get(&format!("/events/{}", sent["features"][1]["event"].as_str().unwrap())).await;
    assert_eq!(event["state"], "dead");
}

#[tokio::test]
async fn few_run_at_a_time_few_are_kept_and_all_end_with_the_gateway() {
    let gate = Gate::start().await;
    gate.broken(50).await;
    let slow = json!({ "filter": { "all": true }, "rate": 1 });
    let mut jobs = Vec::new();
    for _ in 0..9 {
        jobs.push(gate.plan("/replays", slow.clone()).await);
    }
    gate.ask("GET", &path(&jobs[0], ""), None).await.is_problem(404, "job_unknown");
    for job in &jobs[1..3] {
        assert_eq!(gate.ask("POST", &path(job, "/run"), None).await.status, 202);
    }
    gate.ask("POST", &path(&jobs[3], "/run"), None).await.is_problem(429, "api_busy");
    assert_eq!(gate.get("/status").await["jobs"]["running"], 2);
    let store = gate.store.clone();
    gate.stop.send(()).unwrap();
    tokio::time::timeout(super::PATIENCE, gate.running).await.unwrap().unwrap();
    let filter = geonce::store::Filter { source: Some("@audit".to_owned()), ..Default::default() };
    let request = geonce::store::ListRequest { filter, limit: 10, ..Default::default() };
    let entries = store.list(request).await.unwrap();
    assert_eq!(entries.len(), 2);
    for entry in entries {
        assert!(entry.result.unwrap().contains("\"cancelled\":true"), "the trail says how each has ended");
    }
}
