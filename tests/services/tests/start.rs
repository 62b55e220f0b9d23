//! The servers start, do what they are for, and leave nothing behind.

use geonce_services::{Cluster, Fault, Pgbouncer, Postgres, Proxy, Redis, Sentinels};
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn postgres_has_postgis_survives_a_crash_and_stands_behind_pgbouncer() {
    let mut postgres = Postgres::start(&[]);
    let url = postgres.database();
    let name = url.rsplit('/').next().unwrap().to_owned();
    assert!(postgres.sql(&name, "SELECT postgis_lib_version()").starts_with('3'));
    postgres.sql(&name, "CREATE TABLE kept (number int); INSERT INTO kept VALUES (7)");
    postgres.crash_and_restart();
    assert_eq!(postgres.sql(&name, "SELECT number FROM kept"), "7");
    let bouncer = Pgbouncer::start(&postgres);
    assert!(bouncer.url(&url).ends_with(&name));
}

#[test]
fn redis_keeps_what_it_acknowledged() {
    let mut redis = Redis::start(&[]);
    redis.say(&["SET", "a", "1"]);
    redis.kill();
    redis.restart();
    assert_eq!(redis.say(&["GET", "a"]), "1");
}

#[test]
fn sentinels_and_a_cluster_agree() {
    let sentinels = Sentinels::start();
    assert_eq!(sentinels.ports.len(), 3);
    let cluster = Cluster::start();
    assert_eq!(cluster.nodes.len(), 6);
}

#[test]
fn the_proxy_swallows_answers() {
    let redis = Redis::shared();
    let proxy = Proxy::start(redis.port());
    let ask = |command: &[u8]| {
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        stream.write_all(command).unwrap();
        let mut answer = vec![0; 64];
        let read = stream.read(&mut answer).unwrap_or(0);
        answer.truncate(read);
        answer
    };
    assert_eq!(ask(b"SET x 1\r\n"), b"+OK\r\n");
    proxy.set(Fault::Swallow { bytes: b"SET", in_n: 1 });
    assert_eq!(ask(b"SET x 2\r\n"), b"");
    assert_eq!((proxy.swallowed(), redis.say(&["GET", "x"]).as_str()), (1, "2"), "done, but nobody was told");
    proxy.set(Fault::Reset);
    assert_eq!(ask(b"GET x\r\n"), b"");
}
