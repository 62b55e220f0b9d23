//! `geonce demo`: a gateway in a process of its own, a bad network, and two kills. Every number is counted afterwards.

mod change;
mod keys;
mod sender;
mod zones;

use crate::arguments::DemoArguments;
use crate::failure::{Failure, Outcome};
use geonce::event::{Outcome as EventOutcome, State};
use geonce::store::{self, Access, Ledger, ListRequest, Record};
use rusqlite::{Connection, OpenFlags};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const PORT: u16 = 8787;
const SEED: u64 = 0x6765_6f6e_6365;
const MARK: &str = "# Written by geonce demo, and removed by the next one.";
const CONFIG: &str = r#"
[store]
url = "sqlite:geonce.db"

[source.drones]
allow_unsigned = true
identity = ["/properties/zone"]
version = "/properties/version"
invalid = "dead"
sink = "zones"

[sink.zones]
url = "gpkg:features.gpkg"
layer = "zones"
mode = "upsert"
"#;

/// How long to wait for the gateway to be ready, and for everything to be applied, in looks a hundredth of a second apart.
const LOOKS_MAX: usize = 3_000;
/// Records asked for at once.
const PAGE: usize = 500;
const LOOK: Duration = Duration::from_millis(10);

/// Runs the command; the answer is yes if nothing was lost and nothing happened twice.
pub(crate) fn run(arguments: &DemoArguments) -> Outcome {
    if arguments.keys {
        return keys::run();
    }
    let folder = &arguments.folder;
    prepare(folder)?;
    let address = free_address()?;
    let mut gateway = Gateway::start(folder, address)?;
    println!("  POST events to   http://{address}/in/drones");
    println!(
        "  writing to       {}  layer \"zones\"   (open it in QGIS while this runs)\n",
        shown(folder, "features.gpkg")
    );
    let workload = zones::workload(SEED);
    let total = workload.in_time.len() + workload.late.len();
    println!(
        "sending {} updates of {} zones as a bad network would: {} resent, {} late, {} broken rings, the gateway killed twice…\n",
        total - zones::RESENT,
        zones::ZONES,
        zones::RESENT,
        zones::LATE,
        zones::BROKEN
    );
    let done = AtomicUsize::new(0);
    let mut sent = thread::scope(|scope| {
        let sending = scope.spawn(|| sender::send(address, "/in/drones", &workload.in_time, &done));
        for third in [1, 2] {
            while done.load(Ordering::Relaxed) < workload.in_time.len() * third / 3 && !sending.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            gateway.kill_and_restart(folder, address)?;
        }
        sending.join().map_err(|_| Failure::new("internal", "the sender failed"))
    })?;
    wait_until_applied(folder)?;
    let late = sender::send(address, "/in/drones", &workload.late, &done);
    sent.accepted += late.accepted;
    sent.duplicate += late.duplicate;
    sent.unanswered += late.unanswered;
    sent.other.extend(late.other);
    wait_until_applied(folder)?;
    gateway.stop();
    let answer = report(folder, &sent)?;
    if arguments.stay {
        let mut gateway = Gateway::start(folder, address)?;
        println!("\nserving http://{address}/in/drones until Ctrl-C");
        gateway.wait();
    } else {
        println!(
            "next: geonce dead list --data {}   ·   geonce demo --stay keeps the gateway running",
            folder.display()
        );
    }
    Ok(answer)
}

/// An empty folder with the demo's configuration. A folder that is not ours is left alone.
fn prepare(folder: &Path) -> Result<(), Failure> {
    let io = |error: std::io::Error| Failure::io(&folder.display().to_string(), &error);
    let config = folder.join("geonce.toml");
    if folder.exists() {
        let ours = fs::read_to_string(&config).is_ok_and(|text| text.starts_with(MARK));
        let empty = fs::read_dir(folder).map_err(io)?.next().is_none();
        if !ours && !empty {
            let message = format!("{} exists and was not made by the demo", folder.display());
            return Err(Failure::new("demo_folder", message).hint("choose another with --folder"));
        }
        fs::remove_dir_all(folder).map_err(io)?;
    }
    fs::create_dir_all(folder).map_err(io)?;
    fs::write(&config, format!("{MARK}\n{CONFIG}")).map_err(io)
}

/// The usual port, or a free one where that is taken.
fn free_address() -> Result<SocketAddr, Failure> {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| listener.local_addr());
    bind(PORT).or_else(|_| bind(0)).map_err(|error| Failure::io("127.0.0.1", &error))
}

fn shown(folder: &Path, file: &str) -> String {
    folder.join(file).display().to_string()
}

/// The gateway's process; killed when this goes away.
struct Gateway(Child);

impl Gateway {
    fn start(folder: &Path, address: SocketAddr) -> Result<Gateway, Failure> {
        let io = |error: std::io::Error| Failure::io("the gateway", &error);
        let log = fs::File::options().create(true).append(true).open(folder.join("gateway.log")).map_err(io)?;
        let child = Command::new(std::env::current_exe().map_err(io)?)
            .args(["serve", "--listen", &address.to_string()])
            .arg("--config")
            .arg(folder.join("geonce.toml"))
            .arg("--data")
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(io)?;
        let mut gateway = Gateway(child);
        for _ in 0..LOOKS_MAX {
            if sender::is_ready(address) {
                return Ok(gateway);
            }
            if let Ok(Some(status)) = gateway.0.try_wait() {
                let message = format!("the gateway ended with {status}");
                return Err(Failure::new("demo_gateway", message).hint(format!("see {}", shown(folder, "gateway.log"))));
            }
            thread::sleep(LOOK);
        }
        Err(Failure::new("demo_gateway", "the gateway did not become ready"))
    }

    /// SIGKILL: no handler runs, nothing is flushed.
    fn kill_and_restart(&mut self, folder: &Path, address: SocketAddr) -> Result<(), Failure> {
        self.stop();
        *self = Gateway::start(folder, address)?;
        Ok(())
    }

    fn stop(&mut self) {
        // Either fails only where the process is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    fn wait(&mut self) {
        let _ = self.0.wait();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the store holds.
fn inspect(folder: &Path) -> Result<(Ledger, Vec<Record>), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("the runtime", &error))?;
    runtime.block_on(async {
        let store = store::open("sqlite:geonce.db", &store::Options::default(), Access::Tool, folder)?;
        let ledger = store.status().await?.ledgers.get("drones").copied().unwrap_or_default();
        let mut records: Vec<Record> = Vec::new();
        loop {
            let before = records.last().map(|record| record.id);
            let page = store.list(ListRequest { before, limit: PAGE, ..ListRequest::default() }).await?;
            if page.is_empty() {
                break;
            }
            records.extend(page);
        }
        store.close().await?;
        Ok((ledger, records))
    })
}

fn wait_until_applied(folder: &Path) -> Result<(), Failure> {
    for _ in 0..LOOKS_MAX {
        let (ledger, _) = inspect(folder)?;
        if ledger.waiting == 0 {
            return Ok(());
        }
        thread::sleep(LOOK * 5);
    }
    Err(Failure::new("demo_waiting", "events are still waiting").hint("geonce doctor tells why"))
}

fn report(folder: &Path, sent: &sender::Sent) -> Outcome {
    let (ledger, records) = inspect(folder)?;
    let rows = [
        ("received", ledger.received, ""),
        ("applied", ledger.applied, ""),
        ("duplicate", ledger.duplicate, "same event, sent again"),
        ("stale", ledger.stale, "older version arrived late"),
        ("dead", ledger.dead, "geonce dead list"),
        ("refused", ledger.refused, "answered with an error"),
        ("waiting", ledger.waiting, "not applied yet"),
    ];
    for (name, count, remark) in rows.iter().filter(|(name, count, _)| *count > 0 || *name == "received") {
        println!("  {name:<10}{:>7}   {:<34}{remark}", thousands(*count), bar(*count, ledger.received));
    }
    let parts: Vec<String> = rows[1..].iter().filter(|row| row.1 > 0).map(|row| thousands(row.1)).collect();
    let sums = ledger.difference() == 0;
    println!("  ─────────────────  {} = {} {}", parts.join(" + "), thousands(ledger.received), mark(sums));
    if sent.unanswered > 0 {
        println!("  ({} requests met a dead gateway and were sent again)", sent.unanswered);
    }
    let (in_file, distinct) = layer_keys(folder)?;
    // What was answered with 202 must be there: a row, a later version's row, or a dead letter that says why not.
    let found = |wanted: State| records.iter().filter(|record| record.state == wanted).count();
    let recorded = found(State::Done) + found(State::Dead);
    let lost = sent.accepted.saturating_sub(recorded);
    let applied = records.iter().filter(|record| record.outcome == Some(EventOutcome::Applied));
    let missing = applied.filter(|record| !distinct.contains(&record.key.text(geonce_key::Encoding::Base64))).count();
    let twice = in_file - distinct.len();
    let right = sums && lost + missing + twice == 0 && sent.other.is_empty() && ledger.waiting == 0;
    println!(
        "check: {} rows in features.gpkg, {} distinct keys, {twice} twice, {} lost {}",
        thousands(in_file as u64),
        thousands(distinct.len() as u64),
        lost + missing,
        mark(right)
    );
    for (status, answer) in sent.other.iter().take(3) {
        println!("unexpected answer {status}: {answer}");
    }
    Ok(right)
}

/// Rows of the layer, and their distinct keys, read from the file as anybody would.
fn layer_keys(folder: &Path) -> Result<(usize, std::collections::HashSet<String>), Failure> {
    let failure = |error: rusqlite::Error| Failure::new("demo_layer", format!("features.gpkg: {error}"));
    let file = Connection::open_with_flags(folder.join("features.gpkg"), OpenFlags::SQLITE_OPEN_READ_ONLY);
    let file = file.map_err(failure)?;
    let mut statement = file.prepare("SELECT geonce_key FROM zones").map_err(failure)?;
    let keys = statement.query_map([], |row| row.get(0)).map_err(failure)?;
    let keys = keys.collect::<Result<Vec<String>, _>>().map_err(failure)?;
    Ok((keys.len(), keys.into_iter().collect()))
}

fn mark(right: bool) -> &'static str {
    if right { "✓" } else { "✗" }
}

fn bar(count: u64, all: u64) -> String {
    const WIDTH: u64 = 32;
    let width = count * WIDTH / all.max(1);
    if width == 0 { "▏".to_owned() } else { "█".repeat(usize::try_from(width).unwrap_or(0)) }
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}
