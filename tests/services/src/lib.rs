//! Real servers for tests: `PostgreSQL` with PostGIS, pgbouncer, Redis alone, under Sentinels and as a Cluster, and a proxy
//! that disturbs the network. Each runs on free loopback ports from a temporary folder, shares nothing with the machine's own
//! services, and ends with the process that started it, however that ends.
//!
//! A server that cannot be started fails the test: nothing passes because its service is missing.

#![expect(clippy::expect_used, clippy::panic, reason = "a test without its server must fail, with the reason")]
#![expect(clippy::missing_panics_doc, missing_docs, reason = "test code: everything panics, and names say the rest")]

mod child;
mod postgres;
mod proxy;
mod redis;

pub use postgres::{Pgbouncer, Postgres};
pub use proxy::{Fault, Proxy};
pub use redis::{Cluster, Redis, Sentinels};

use std::net::TcpListener;
use std::time::Duration;

/// How often a server is asked after its start whether it answers,
const START_TRIES_MAX: usize = 3_000;
/// and how long it is left alone in between.
const START_PAUSE: Duration = Duration::from_millis(20);

/// A loopback port that is free at this moment.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its number").port()
}

/// Tries until it works, for as long as a server may take to start.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let mut last = String::new();
    for _ in 0..START_TRIES_MAX {
        match attempt() {
            Ok(found) => return found,
            Err(error) => last = error,
        }
        std::thread::sleep(START_PAUSE);
    }
    panic!("{what}: {last}")
}
