//! Redis: alone, under Sentinels, as a Cluster.

use crate::child::{Folder, Server, give, run, try_run};
use crate::{free_port, until};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

const PROGRAM: &str = "/usr/bin/redis-server";

/// What a store needs: nothing is evicted, and an answer means that it is on disk.
const DURABLE: [&str; 8] =
    ["--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction", "--save", ""];

/// A server of its own.
pub struct Redis {
    port: u16,
    server: Server,
    folder: Folder,
    settings: Vec<String>,
}

impl Redis {
    /// A durable server that all tests of this process share.
    pub fn shared() -> &'static Redis {
        static SHARED: OnceLock<Redis> = OnceLock::new();
        SHARED.get_or_init(|| Redis::start(&[]))
    }

    /// Starts a durable server; further settings, such as `["--maxmemory", "4mb"]`, win.
    pub fn start(settings: &[&str]) -> Redis {
        Redis::start_on(free_port(), settings)
    }

    fn start_on(port: u16, settings: &[&str]) -> Redis {
        let folder = Folder::new("redis");
        let settings: Vec<String> = DURABLE.iter().chain(settings).map(|&word| word.to_owned()).collect();
        let server = launch(&folder, port, &settings);
        let started = Redis { port, server, folder, settings };
        started.await_answer();
        started
    }

    fn await_answer(&self) {
        until("Redis", || match try_run(&mut client(self.port, &["PING"])) {
            Ok(answer) if answer.trim() == "PONG" => Ok(()),
            Ok(answer) | Err(answer) => Err(answer),
        });
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// What the server says to a command.
    pub fn say(&self, words: &[&str]) -> String {
        run(&mut client(self.port, words)).trim_end().to_owned()
    }

    /// Waits until a replica has all that was written before. `WAIT` would not do: it looks only at what its own connection
    /// has written, and this one has written nothing.
    pub fn await_replica(&self) {
        let mut written = 0;
        until("a replica", || {
            let info = self.say(&["INFO", "replication"]);
            // Nothing is counted before the first replica comes.
            if written == 0 {
                written = number(&info, "master_repl_offset:").unwrap_or(0);
            }
            let mut replicas = info.lines().filter(|line| line.contains("state=online"));
            let has_all = |line: &str| written > 0 && number(line, "offset=").is_some_and(|offset| offset >= written);
            if replicas.any(has_all) { Ok(()) } else { Err(info) }
        });
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        let info = self.say(&["INFO", "server"]);
        let found = info.lines().find_map(|line| line.trim().strip_prefix("process_id:")?.parse().ok());
        found.expect("the server's process id")
    }

    /// Stops it from running without ending it.
    pub fn freeze(&self, process: u32) {
        run(Command::new("kill").args(["-STOP", &process.to_string()]));
    }

    pub fn thaw(&self, process: u32) {
        run(Command::new("kill").args(["-CONT", &process.to_string()]));
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        let process = self.process();
        run(Command::new("kill").args(["-KILL", &process.to_string()]));
        self.server.end();
    }

    /// Starts it again on its port, with what it has on disk.
    pub fn restart(&mut self) {
        self.server.end();
        self.server = launch(&self.folder, self.port, &self.settings);
        self.await_answer();
    }
}

fn launch(folder: &Folder, port: u16, settings: &[String]) -> Server {
    let folder_text = folder.path().display().to_string();
    let mut arguments: Vec<String> =
        ["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir", &folder_text].map(str::to_owned).into();
    arguments.extend_from_slice(settings);
    Server::start(Path::new(PROGRAM), &arguments, &folder.join("log"), "TERM")
}

/// The number after a name, in lines of fields.
fn number(text: &str, name: &str) -> Option<u64> {
    text.split(['\r', '\n', ',']).find_map(|field| field.strip_prefix(name)?.parse().ok())
}

fn client(port: u16, words: &[&str]) -> Command {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &port.to_string()]).args(words);
    command
}

/// A primary with a replica, watched by three Sentinels.
pub struct Sentinels {
    pub name: String,
    pub ports: Vec<u16>,
    pub primary: Redis,
    pub replica: Redis,
    _servers: Vec<(Server, Folder)>,
}

impl Sentinels {
    pub fn start() -> Sentinels {
        let name = "geonce".to_owned();
        let primary = Redis::start(&[]);
        let replica = Redis::start(&["--replicaof", &format!("127.0.0.1 {}", primary.port)]);
        let mut ports = Vec::new();
        let mut servers = Vec::new();
        for _ in 0..3 {
            let (folder, port) = (Folder::new("sentinel"), free_port());
            let mut settings = format!("port {port}\nbind 127.0.0.1\ndir {}\n", folder.path().display());
            let _ = writeln!(settings, "sentinel monitor {name} 127.0.0.1 {} 2", primary.port);
            let _ = writeln!(
                settings,
                "sentinel down-after-milliseconds {name} 1000\nsentinel failover-timeout {name} 5000"
            );
            let file = folder.join("sentinel.conf");
            std::fs::write(&file, settings).expect("the Sentinel's settings");
            give(&file);
            let arguments = [file.display().to_string(), "--sentinel".to_owned()];
            servers.push((Server::start(Path::new(PROGRAM), &arguments, &folder.join("log"), "TERM"), folder));
            ports.push(port);
        }
        // A failover needs a replica that is known to all and two Sentinels that know each other.
        for &port in &ports {
            until("Sentinel", || {
                let known = try_run(&mut client(port, &["SENTINEL", "MASTER", &name]))?;
                let lines: Vec<&str> = known.lines().collect();
                let field = |name: &str| lines.chunks(2).find(|pair| pair[0] == name).map_or("", |pair| pair[1]);
                let ready = field("num-slaves") == "1" && field("num-other-sentinels") == "2";
                if ready { Ok(()) } else { Err(known) }
            });
        }
        Sentinels { name, ports, primary, replica, _servers: servers }
    }

    /// Such as `redis+sentinel://127.0.0.1:1,127.0.0.1:2/geonce`.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+sentinel://{}/{}", hosts.join(","), self.name)
    }
}

/// Three primaries with a replica each.
pub struct Cluster {
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// The Cluster that all tests of this process share.
    pub fn shared() -> &'static Cluster {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(Cluster::start)
    }

    pub fn start() -> Cluster {
        let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
        let nodes: Vec<Redis> = (0..6).map(|_| Redis::start_on(cluster_port(), &settings)).collect();
        let hosts = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port));
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]).args(hosts).args(["--cluster-replicas", "1", "--cluster-yes"]);
        run(&mut create);
        for node in &nodes {
            until("Redis Cluster", || {
                let info = node.say(&["CLUSTER", "INFO"]);
                let nodes = node.say(&["CLUSTER", "NODES"]);
                let ready = info.contains("cluster_state:ok")
                    && nodes.matches(" slave ").count() + nodes.matches("myself,slave").count() >= 3;
                if ready { Ok(()) } else { Err(info) }
            });
        }
        Cluster { nodes }
    }

    /// Such as `redis+cluster://127.0.0.1:1,127.0.0.1:2`.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }
}

/// A port whose bus port, ten thousand higher, exists and is free too.
fn cluster_port() -> u16 {
    loop {
        let port = free_port();
        if port < 55_000 && std::net::TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
            return port;
        }
    }
}
