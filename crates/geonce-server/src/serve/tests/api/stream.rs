//! What happens, followed over a connection.

use super::super::{Client, PATIENCE};
use super::{BROKEN, Gate, request};
use tokio::net::TcpStream;

struct Follower(Client);

impl Follower {
    async fn of(gate: &Gate) -> Follower {
        let mut client = Client { stream: TcpStream::connect(gate.address).await.unwrap(), read: Vec::new() };
        client.send(request("GET", "/stream", None)).await;
        let mut follower = Follower(client);
        follower.reads("retry: 2000").await;
        follower
    }

    /// Reads until this was said; all that was said so far.
    async fn reads(&mut self, words: &str) -> String {
        loop {
            let text = String::from_utf8_lossy(&self.0.read).into_owned();
            if text.contains(words) {
                return text;
            }
            assert!(!self.0.more().await, "{words} was not said in {text}");
        }
    }
}

#[tokio::test]
async fn a_follower_is_told_what_becomes_of_events() {
    let gate = Gate::start().await;
    let mut follower = Follower::of(&gate).await;
    let text = follower.reads("\r\n\r\n").await.to_lowercase();
    assert!(text.starts_with("http/1.1 200") && text.contains("content-type: text/event-stream"), "{text}");
    assert!(text.contains("transfer-encoding: chunked"));
    let point = "{\"type\":\"Point\",\"coordinates\":[1,2]}\n";
    gate.send(&format!("{point}{BROKEN}\n")).await;
    gate.raw(super::super::post("/in/drones", "", point)).await;
    let text = follower.reads("event: duplicate").await;
    assert!(text.contains("event: accepted\ndata: {\"event\":\"evt_"), "{text}");
    assert!(text.contains("event: refused") && text.contains("\"code\":\"self_intersection\""), "{text}");
    gate.gateway.api.stream.attempted("zones", "evt_01JD8Q0000000000000000000Z".parse().unwrap(), "applied", None);
    follower.reads("event: applied\ndata: {\"event\":\"evt_01JD8Q0000000000000000000Z\",\"sink\":\"zones\"}").await;
    assert_eq!(gate.get("/status").await["stream"]["readers"], 1);
}

#[tokio::test]
async fn a_gateway_that_stops_lets_its_followers_go() {
    let gate = Gate::start().await;
    let mut follower = Follower::of(&gate).await;
    gate.stop.send(()).unwrap();
    assert!(follower.0.closed().await.contains(": the gateway stops"));
    let drained = tokio::time::timeout(PATIENCE, gate.running).await.unwrap().unwrap();
    assert_eq!(drained.cut_off, 0);
}
