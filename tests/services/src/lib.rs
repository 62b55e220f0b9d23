//! Real servers for tests: PostgreSQL with PostGIS, pgbouncer, Redis alone, under Sentinels and as a Cluster, and a proxy
//! that disturbs the network. Each runs on free loopback ports from a temporary folder, shares nothing with the machine's own
//! services, and ends with the process that started it, however that ends.
//!
//! A server that cannot be started fails the test: nothing passes because its service is missing.

#![expect(clippy::expect_used, clippy::panic, reason = "a test without its server must fail, with the reason")]
#![allow(missing_docs, reason = "test code; names say it")]

mod child;
mod postgres;
mod proxy;
mod redis;

pub use postgres::{Pgbouncer, Postgres};
pub use proxy::{Fault, Proxy};
pub use redis::{Cluster, Redis, Sentinels};

use std::net::TcpListener;
use std::time::{Duration, Instant};

/// How long a server may take to answer after its start.
const START_SECONDS_MAX: u64 = 60;

/// A loopback port that is free at this moment.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its number").port()
}

/// Tries until it works, for as long as a server may take to start.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match attempt() {
            Ok(found) => return found,
            Err(error) if began.elapsed() > Duration::from_secs(START_SECONDS_MAX) => panic!("{what}: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
