//! The servers for tests in other languages: commands on standard input, one a line, words divided by tabs; one line back for
//! each. Everything ends with standard input.
//!
//! `postgres [SETTING…]` `database N` `sql N DATABASE STATEMENT` `crash N` `start N` · `redis [SETTING…]` `say N WORD…` `freeze N`
//! `thaw N` `kill N` `restart N` · `cluster` `sentinels` · `proxy PORT` `fault N NAME [ARGUMENT…]` `swallowed N`

#![expect(clippy::expect_used, clippy::panic, reason = "a test without its server must fail, with the reason")]

use geonce_services::{Cluster, Fault, Postgres, Proxy, Redis, Sentinels};
use std::io::{BufRead, Write};
use std::time::Duration;

/// What was started, by number.
#[derive(Default)]
struct Services {
    postgres: Vec<Postgres>,
    redis: Vec<(Redis, u32)>,
    clusters: Vec<Cluster>,
    sentinels: Vec<Sentinels>,
    proxies: Vec<Proxy>,
}

fn main() {
    let mut services = Services::default();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line of text");
        let words: Vec<&str> = line.split('\t').collect();
        let answer = services.obey(words[0], &words[1..]);
        writeln!(out, "{}", answer.replace('\n', "\u{1e}")).expect("somebody to answer to");
        out.flush().expect("somebody to answer to");
    }
}

impl Services {
    /// Does one thing; what there is to say about it.
    fn obey(&mut self, command: &str, words: &[&str]) -> String {
        match command {
            "postgres" => {
                self.postgres.push(Postgres::start(words));
                self.postgres[self.postgres.len() - 1].port().to_string()
            }
            "database" => self.postgres[number(words)].database(),
            "sql" => self.postgres[number(words)].sql(words[1], words[2]),
            "redis" => {
                let redis = Redis::start(words);
                let (port, process) = (redis.port(), redis.process());
                self.redis.push((redis, process));
                port.to_string()
            }
            "say" => self.redis[number(words)].0.say(&words[1..]),
            "cluster" => {
                self.clusters.push(Cluster::start());
                self.clusters[self.clusters.len() - 1].url()
            }
            "sentinels" => {
                self.sentinels.push(Sentinels::start());
                self.sentinels[self.sentinels.len() - 1].url()
            }
            "proxy" => {
                self.proxies.push(Proxy::start(words[0].parse().expect("a port")));
                self.proxies[self.proxies.len() - 1].port().to_string()
            }
            "swallowed" => self.proxies[number(words)].swallowed().to_string(),
            _ => {
                self.act(command, words);
                String::new()
            }
        }
    }

    /// Does something of which there is nothing to say.
    fn act(&mut self, command: &str, words: &[&str]) {
        let number = number(words);
        match command {
            "crash" => self.postgres[number].crash(),
            "start" => self.postgres[number].restart(),
            "freeze" | "thaw" | "kill" | "restart" => {
                let (redis, process) = &mut self.redis[number];
                match command {
                    "freeze" => redis.freeze(*process),
                    "thaw" => redis.thaw(*process),
                    "kill" => redis.kill(),
                    _ => {
                        redis.restart();
                        *process = redis.process();
                    }
                }
            }
            "fault" => self.proxies[number].set(fault(&words[1..])),
            other => panic!("no such command: {other}"),
        }
    }
}

/// Which one is meant.
fn number(words: &[&str]) -> usize {
    words.first().and_then(|word| word.parse().ok()).expect("a number")
}

fn fault(words: &[&str]) -> Fault {
    match *words {
        ["none"] => Fault::None,
        ["hole"] => Fault::Hole,
        ["half-open"] => Fault::HalfOpen,
        ["reset"] => Fault::Reset,
        ["delay", millis] => Fault::Delay(Duration::from_millis(millis.parse().expect("milliseconds"))),
        ["swallow", "commit", in_n] => Fault::Swallow { bytes: b"COMMIT", in_n: in_n.parse().expect("a number") },
        _ => panic!("no such fault: {words:?}"),
    }
}
