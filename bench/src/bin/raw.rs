//! The ceilings under the gateway that the disk and the database set, with the same rows and the same promises:
//! `raw accept` group-commits keys and payloads (WAL, synchronous=FULL, checkpoints beside the writer) for many waiting
//! tasks; `raw layer` inserts features into a GeoPackage table with its R-tree; `raw fsync` times the disk alone.
//!
//! Usage: `raw accept|layer|fsync FILE [--tasks 64] [--rows 1] [--seconds 5] [--tag 1]`

use geonce::clock::Stopwatch;
use geonce_bench::arguments::Arguments;
use geonce_bench::measure::{Latencies, count, cpu_seconds, memory_peak_megabytes};
use geonce_bench::points;
use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The most rows of one commit, where that many wait.
const COMMIT_ROWS_MAX: usize = 4_096;
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(250);

struct Row {
    key: [u8; 16],
    payload: Vec<u8>,
}

struct Ask {
    rows: Vec<Row>,
    done: oneshot::Sender<()>,
}

fn row(tag: u64, number: u64) -> Row {
    let mut payload = Vec::with_capacity(256);
    points::write(tag, number, &mut payload);
    let mut key = [0; 16];
    key.copy_from_slice(&Sha256::digest(&payload)[..16]);
    Row { key, payload }
}

/// Commits what has gathered while the commit before was on its way to the disk.
fn write_rows(connection: &mut Connection, asks: &mut mpsc::Receiver<Ask>) -> rusqlite::Result<()> {
    while let Some(first) = asks.blocking_recv() {
        let mut gathered = vec![first];
        let mut rows = gathered[0].rows.len();
        while rows < COMMIT_ROWS_MAX
            && let Ok(ask) = asks.try_recv()
        {
            rows += ask.rows.len();
            gathered.push(ask);
        }
        let transaction = connection.transaction()?;
        {
            let mut insert =
                transaction.prepare_cached("INSERT OR IGNORE INTO event (key, payload) VALUES (?1, ?2)")?;
            for row in gathered.iter().flat_map(|ask| &ask.rows) {
                insert.execute(params![row.key, row.payload])?;
            }
        }
        transaction.commit()?;
        for ask in gathered {
            // A task that has gone does not want its answer.
            let _ = ask.done.send(());
        }
    }
    Ok(())
}

fn durable(file: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "cache_size", -65_536)?;
    Ok(connection)
}

/// What a run gave: how many rows, and how long each task waited.
struct Run {
    rows: u64,
    latencies: Latencies,
}

fn accept(file: &Path, arguments: &Arguments) -> Result<Run, Failure> {
    let (tasks, rows) = (arguments.value("tasks", 64usize)?, arguments.value("rows", 1u64)?);
    let (seconds, tag) = (Duration::from_secs_f64(arguments.value("seconds", 5.0)?), arguments.value("tag", 1)?);
    let mut writer = durable(file)?;
    writer.execute_batch(
        "CREATE TABLE event (seq INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, payload BLOB NOT NULL)",
    )?;
    let over = Arc::new(AtomicBool::new(false));
    let checkpointer = durable(file)?;
    let checkpoints = std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(CHECKPOINT_PAUSE);
                let _ = checkpointer.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
            }
        }
    });
    let (asks, mut waiting) = mpsc::channel::<Ask>(COMMIT_ROWS_MAX);
    let writing = std::thread::spawn(move || write_rows(&mut writer, &mut waiting));
    let runtime = tokio::runtime::Runtime::new()?;
    let run = runtime.block_on(async {
        let next = Arc::new(AtomicU64::new(0));
        let running: Vec<_> = (0..tasks)
            .map(|_| tokio::spawn(ask_until_over(asks.clone(), Arc::clone(&next), Arc::clone(&over), tag, rows)))
            .collect();
        drop(asks);
        tokio::time::sleep(seconds).await;
        over.store(true, Ordering::Relaxed);
        let mut run = Run { rows: 0, latencies: Latencies::default() };
        for task in running {
            let latencies = task.await?;
            run.rows += latencies.len() as u64 * rows;
            run.latencies.extend(latencies);
        }
        Ok::<_, Failure>(run)
    })?;
    writing.join().map_err(|_| "the writer failed")??;
    checkpoints.join().map_err(|_| "the checkpoints failed")?;
    Ok(run)
}

async fn ask_until_over(
    asks: mpsc::Sender<Ask>,
    next: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    tag: u64,
    rows: u64,
) -> Latencies {
    let mut latencies = Latencies::default();
    while !over.load(Ordering::Relaxed) {
        let first = next.fetch_add(rows, Ordering::Relaxed);
        let rows = (first..first + rows).map(|number| row(tag, number)).collect();
        let watch = Stopwatch::start();
        let (done, answer) = oneshot::channel();
        if asks.send(Ask { rows, done }).await.is_err() || answer.await.is_err() {
            break;
        }
        latencies.add(watch.elapsed());
    }
    latencies
}

const LAYER: &str = "
    CREATE TABLE features (fid INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, geom BLOB, geonce_key TEXT, geonce_event TEXT,
        asset_id TEXT, zone_code TEXT, speed REAL, heading INTEGER, sequence INTEGER, status TEXT);
    CREATE INDEX features_geonce_key ON features (geonce_key);
    CREATE VIRTUAL TABLE rtree_features_geom USING rtree (id, minx, maxx, miny, maxy);";

/// A point as a GeoPackage holds it: header without an envelope, then WKB.
fn geometry(x: f64, y: f64) -> [u8; 29] {
    let mut blob = [0; 29];
    blob[..8].copy_from_slice(&[b'G', b'P', 0, 1, 0xe6, 0x10, 0, 0]);
    blob[8..13].copy_from_slice(&[1, 1, 0, 0, 0]);
    blob[13..21].copy_from_slice(&x.to_le_bytes());
    blob[21..].copy_from_slice(&y.to_le_bytes());
    blob
}

fn layer(file: &Path, arguments: &Arguments) -> Result<Run, Failure> {
    let (rows, seconds) = (arguments.value("rows", 1_000u64)?, arguments.value("seconds", 5.0)?);
    let tag = arguments.value("tag", 1)?;
    let mut connection = Connection::open(file)?;
    // A rollback journal, as the gateway uses for files that other programs read meanwhile.
    connection.pragma_update(None, "journal_mode", "TRUNCATE")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -65_536)?;
    connection.execute_batch(LAYER)?;
    let (watch, mut run) = (Stopwatch::start(), Run { rows: 0, latencies: Latencies::default() });
    while watch.elapsed().as_secs_f64() < seconds {
        let commit = Stopwatch::start();
        let transaction = connection.transaction()?;
        {
            let mut feature = transaction.prepare_cached(
                "INSERT INTO features (geom, geonce_key, geonce_event, asset_id, zone_code, speed, heading, sequence, status)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'ok')",
            )?;
            let mut index =
                transaction.prepare_cached("INSERT INTO rtree_features_geom VALUES (?1, ?2, ?2, ?3, ?3)")?;
            for number in run.rows..run.rows + rows {
                let (x, y) = points::position(tag, number);
                let [x, y] = [x, y].map(|units| f64::from(i32::try_from(units).unwrap_or(0)) / 1e7);
                let digest = Sha256::digest(number.to_le_bytes());
                let key = format!("g1_{:022x}", u128::from_le_bytes(digest[..16].try_into()?) >> 40);
                let event = format!("evt_{number:026}");
                let (asset, zone) = (format!("A-{:06}", number % 1_000_000), format!("Z{:02}", number % 100));
                let heading = i64::try_from(number % 360)?;
                let speed = count(number % 40) + 0.25;
                let fid = feature.insert(params![
                    geometry(x, y),
                    key,
                    event,
                    asset,
                    zone,
                    speed,
                    heading,
                    i64::try_from(number)?
                ])?;
                index.execute(params![fid, x, y])?;
            }
        }
        transaction.commit()?;
        run.latencies.add(commit.elapsed());
        run.rows += rows;
    }
    Ok(run)
}

fn fsync(file: &Path, arguments: &Arguments) -> Result<Run, Failure> {
    let seconds = arguments.value("seconds", 2.0)?;
    let mut file = std::fs::File::create(file)?;
    let (watch, mut run) = (Stopwatch::start(), Run { rows: 0, latencies: Latencies::default() });
    while watch.elapsed().as_secs_f64() < seconds {
        let sync = Stopwatch::start();
        file.write_all(&[7; 4_096])?;
        file.sync_data()?;
        run.latencies.add(sync.elapsed());
        run.rows += 1;
    }
    Ok(run)
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let file = Path::new(arguments.word(1)?);
    let (watch, cpu) = (Stopwatch::start(), cpu_seconds());
    let mut run = match arguments.word(0)? {
        "accept" => accept(file, &arguments)?,
        "layer" => layer(file, &arguments)?,
        "fsync" => fsync(file, &arguments)?,
        other => return Err(format!("{other}: accept, layer or fsync").into()),
    };
    let seconds = watch.elapsed().as_secs_f64();
    let line = serde_json::json!({
        "events": run.rows,
        "seconds": seconds,
        "events_per_second": count(run.rows) / seconds,
        "p50_ms": run.latencies.milliseconds_at(500),
        "p99_ms": run.latencies.milliseconds_at(990),
        "cpu_seconds": cpu_seconds() - cpu,
        "memory_mb": memory_peak_megabytes(),
    });
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}
