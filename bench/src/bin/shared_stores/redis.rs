//! Accepting into Redis, beside `redis-benchmark SET … NX EX` at the same pipelining, on the same synced server.

use crate::accept::{Maker, by, turn};
use crate::{Done, Size, Turn, print, ratio};
use geonce::store::{self, Access, Options};
use geonce_services::Redis;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Bytes of a value: about a payload.
const VALUE_BYTES: usize = 240;
/// Batches in flight, and events in each.
const SHAPES: [(usize, u64); 3] = [(64, 1), (64, 32), (16, 256)];

pub(crate) fn compare(size: Size) -> Done<()> {
    let server = Redis::start(&[]);
    let process = server.process();
    let store = store::open(&server.url(), &Options::default(), Access::Gateway, Path::new("."))?;
    let runtime = tokio::runtime::Runtime::new()?;
    let maker = Arc::new(Maker::new());
    println!("Redis: accepting, appendfsync always");
    for shape in SHAPES {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..size.rounds {
            let accept = by(&store);
            let accept = move |batch| {
                let accepted = accept(batch);
                async move { Ok(accepted.await?) }
            };
            let our = runtime.block_on(turn(process, size.seconds, shape, &maker, accept))?;
            ours.push(our);
            theirs.push(set(&server, shape, size.events)?);
        }
        print(&format!("  {} × {}: redis-benchmark SET NX EX", shape.0, shape.1), &theirs);
        print(&format!("  {} × {}: store", shape.0, shape.1), &ours);
        println!("    rate {:.0} % of SET NX EX", ratio(&ours, &theirs, |turn| turn.per_second));
    }
    runtime.block_on(store.close())?;
    Ok(())
}

/// What redis-benchmark reaches with so many clients and so many commands in each pipeline.
fn set(server: &Redis, (clients, pipeline): (usize, u64), events: u64) -> Done<Turn> {
    let value = "v".repeat(VALUE_BYTES);
    let numbers = [server.port().to_string(), clients.to_string(), pipeline.to_string(), events.to_string()];
    let mut command = Command::new("redis-benchmark");
    command.args([
        "-p",
        &numbers[0],
        "-c",
        &numbers[1],
        "-P",
        &numbers[2],
        "-n",
        &numbers[3],
        "-r",
        "1000000000",
        "--csv",
    ]);
    command.args(["SET", "bench:__rand_int__", &value, "NX", "EX", "604800"]);
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().last().ok_or("redis-benchmark said nothing")?;
    let fields: Vec<f64> = line.split("\",\"").map(|field| field.trim_matches('"').parse().unwrap_or(0.0)).collect();
    // test, requests per second, average, least, p50, p95, p99, most.
    let figure = |place: usize| fields.get(place).copied().ok_or_else(|| format!("{line:?} cannot be read"));
    Ok(Turn { per_second: figure(1)?, p50_ms: figure(4)?, p99_ms: figure(6)?, ..Turn::default() })
}
