//! From the store into a PostGIS layer in the same database, settled, beside COPY of the same rows into a table with the same
//! columns and indexes; and what a second gateway costs.

use crate::{Done, Meter, SETTINGS, Size, Turn, postmaster, print, ratio};
use futures_util::SinkExt as _;
use geonce::clock::{Stopwatch, SystemClock};
use geonce::delivery::{Delivery, Destination, Unobserved, WORKERS, run};
use geonce::intake::{Arrival, FeatureReceipt, Intake, Source};
use geonce::sink::{self, Mode, Sink};
use geonce::store::{self, Access, Options, Store};
use geonce_bench::measure::count;
use geonce_bench::points;
use geonce_key::policy::Field;
use geonce_key::split::Format;
use geonce_key::{Pointer, Policy};
use geonce_services::Postgres;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Rows of one COPY: as many as delivery writes at once.
const COPY_ROWS: u64 = 2_048;
/// Features of one request.
const REQUEST_FEATURES: u64 = 1_000;

/// A gateway without its HTTP.
struct Gateway {
    store: Arc<dyn Store>,
    sink: Arc<dyn Sink>,
    intake: Intake,
    source: Arc<Source>,
    upsert: bool,
}

impl Gateway {
    fn open(url: &str, mode: Mode) -> Done<Gateway> {
        let store = store::open(url, &Options::default(), Access::Gateway, Path::new("."))?;
        let sink = sink::open("written", url, &sink::Options { mode, ..sink::Options::default() }, Path::new("."))?;
        let source = Arc::new(Source::new("fleet", Policy::default(), &["written".to_owned()])?);
        let intake = Intake::new(Arc::clone(&store), Arc::new(SystemClock));
        Ok(Gateway { store, sink, intake, source, upsert: mode != Mode::Append })
    }

    /// Has events recorded, from this number on.
    async fn send(&self, first: u64, events: u64) -> Done<()> {
        let mut next = first;
        while next < first + events {
            let end = (next + REQUEST_FEATURES).min(first + events);
            let mut body = Vec::new();
            for number in next..end {
                points::write(1, number, &mut body);
                body.push(b'\n');
            }
            let arrival = Arrival { body: body.into(), format: Format::Lines, ..Arrival::default() };
            let receipt = self.intake.receive(&self.source, arrival).await.map_err(|_| "refused")?;
            if receipt.features.iter().any(|feature| !matches!(feature, FeatureReceipt::Accepted { .. })) {
                return Err("an event was known before it was made".into());
            }
            next = end;
        }
        Ok(())
    }

    /// Starts the workers.
    fn serve(&self) -> Done<Serving> {
        let entity =
            if self.upsert { Some(vec![Field::required(Pointer::parse("/properties/sequence")?)]) } else { None };
        let mut destination = Destination::new("written", Arc::clone(&self.sink));
        destination.entity = entity;
        let destination = Arc::new(destination);
        let delivery = Arc::new(Delivery {
            store: Arc::clone(&self.store),
            clock: Arc::new(SystemClock),
            policies: [(Arc::from("fleet"), Policy::default())].into(),
            near: std::collections::HashMap::new(),
            lateness: std::collections::HashMap::new(),
            lease: geonce::delivery::LEASE,
            holder: "test".into(),
            observer: Arc::new(Unobserved),
            pressure: self.intake.pressure(),
        });
        let (stop, stopped) = watch::channel(false);
        let workers =
            (0..WORKERS).map(|_| tokio::spawn(run(Arc::clone(&delivery), Arc::clone(&destination), stopped.clone())));
        Ok(Serving { stop, workers: workers.collect() })
    }

    async fn all_served(&self) -> Done<()> {
        while self.store.next_due("written".into()).await?.is_some() {
            // Looking costs the server something too.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

struct Serving {
    stop: watch::Sender<bool>,
    workers: Vec<tokio::task::JoinHandle<()>>,
}

impl Serving {
    async fn end(self) -> Done<()> {
        self.stop.send_replace(true);
        for worker in self.workers {
            worker.await?;
        }
        Ok(())
    }
}

async fn client(url: &str) -> Done<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn figures(events: u64, watch: Stopwatch, meter: &Meter) -> Turn {
    let per_second = count(events) / watch.elapsed().as_secs_f64();
    let (own_cpu, server_cpu) = meter.each(events);
    Turn { per_second, own_cpu, server_cpu, ..Turn::default() }
}

/// The rows that were written last, as COPY takes them, in batches.
async fn rows(client: &tokio_postgres::Client, after: i64) -> Done<(String, Vec<Vec<u8>>)> {
    let columns: String = client
        .query_one(
            "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
             WHERE attrelid = 'written'::regclass AND attnum > 0 AND NOT attisdropped AND attname <> 'fid'",
            &[],
        )
        .await?
        .get(0);
    let fids = "SELECT min(fid) FROM (SELECT fid, (row_number() OVER (ORDER BY fid) - 1) / $1 AS part FROM written WHERE fid > $2) numbered
                GROUP BY part ORDER BY 1";
    let parts: Vec<i64> =
        client.query(fids, &[&i64::try_from(COPY_ROWS)?, &after]).await?.iter().map(|row| row.get(0)).collect();
    let mut batches = Vec::new();
    for (place, first) in parts.iter().enumerate() {
        let end = parts.get(place + 1).map_or(String::new(), |end| format!("AND fid < {end}"));
        let out = format!("COPY (SELECT {columns} FROM written WHERE fid >= {first} {end}) TO STDOUT (FORMAT binary)");
        let mut stream = std::pin::pin!(client.copy_out(&out).await?);
        let mut batch = Vec::new();
        while let Some(chunk) =
            std::future::poll_fn(|context| futures_util::Stream::poll_next(stream.as_mut(), context)).await
        {
            batch.extend_from_slice(&chunk?);
        }
        batches.push(batch);
    }
    Ok((columns, batches))
}

/// Copies batches, each in a transaction, on so many connections.
async fn copy(url: &str, table: &str, columns: &str, batches: &[Vec<u8>], connections: usize) -> Done<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for connection in 0..connections {
        let client = client(url).await?;
        let text = format!("COPY {table} ({columns}) FROM STDIN (FORMAT binary)");
        let own: Vec<bytes::Bytes> = batches
            .iter()
            .skip(connection)
            .step_by(connections)
            .map(|batch| bytes::Bytes::copy_from_slice(batch))
            .collect();
        tasks.spawn(async move {
            for batch in own {
                let mut sink = std::pin::pin!(client.copy_in::<_, bytes::Bytes>(&text).await?);
                sink.send(batch).await?;
                sink.finish().await?;
            }
            Ok::<_, tokio_postgres::Error>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

pub(crate) fn compare(size: Size) -> Done<()> {
    let server = Postgres::start(&SETTINGS);
    let process = postmaster(&server)?;
    let runtime = tokio::runtime::Runtime::new()?;
    for (name, mode) in [("append", Mode::Append), ("upsert", Mode::Upsert { arrival: true })] {
        let url = server.database();
        let gateway = Gateway::open(&url, mode)?;
        runtime.block_on(async {
            let client = client(&url).await?;
            gateway.sink.check().await?;
            // Makes the columns, so that the other tables have them too.
            gateway.send(0, 10).await?;
            let serving = gateway.serve()?;
            gateway.all_served().await?;
            serving.end().await?;
            client
                .batch_execute(
                    "CREATE TABLE one (LIKE written INCLUDING ALL); CREATE TABLE two (LIKE written INCLUDING ALL)",
                )
                .await?;
            println!("PostGIS: {name}, {} events a turn", size.events);
            let (mut ours, mut one, mut two) = (Vec::new(), Vec::new(), Vec::new());
            for round in 0..size.rounds {
                let last: i64 = client.query_one("SELECT max(fid) FROM written", &[]).await?.get(0);
                gateway.send(10 + round as u64 * size.events, size.events).await?;
                let (meter, watch) = (Meter::start(process), Stopwatch::start());
                let serving = gateway.serve()?;
                gateway.all_served().await?;
                ours.push(figures(size.events, watch, &meter));
                serving.end().await?;
                let (columns, batches) = rows(&client, last).await?;
                for (table, connections, turns) in [("one", 1, &mut one), ("two", 2, &mut two)] {
                    let (meter, watch) = (Meter::start(process), Stopwatch::start());
                    copy(&url, table, &columns, &batches, connections).await?;
                    turns.push(figures(size.events, watch, &meter));
                }
            }
            let counts =
                "SELECT (SELECT count(*) FROM written), (SELECT count(*) FROM one), (SELECT count(*) FROM two)";
            let counts = client.query_one(counts, &[]).await?;
            println!(
                "  rows: {} written, {} and {} copied",
                counts.get::<_, i64>(0),
                counts.get::<_, i64>(1),
                counts.get::<_, i64>(2)
            );
            print("  COPY, one connection", &one);
            print("  COPY, two connections", &two);
            print("  accepted, to row and settlement", &ours);
            for (what, theirs) in [("one", &one), ("two", &two)] {
                println!(
                    "    rate {:.0} % of COPY on {what}, server CPU {:.0} %",
                    ratio(&ours, theirs, |turn| turn.per_second),
                    ratio(&ours, theirs, |turn| turn.server_cpu)
                );
            }
            gateway.store.close().await?;
            Ok::<_, crate::Failure>(())
        })?;
    }
    Ok(())
}

/// Accepts and delivers with so many gateways, each on threads of its own.
fn serve_all(server: &Postgres, process: u32, gateways: u64, next: &Arc<AtomicU64>, events: u64) -> Done<Turn> {
    let url = server.database();
    let mut running = Vec::new();
    let opened: Vec<Gateway> = (0..gateways).map(|_| Gateway::open(&url, Mode::Append)).collect::<Done<_>>()?;
    let (meter, watch) = (Meter::start(process), Stopwatch::start());
    for gateway in opened {
        let next = Arc::clone(next);
        running.push(std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(async {
                let serving = gateway.serve()?;
                let mut left = events / gateways;
                while left > 0 {
                    let now = left.min(REQUEST_FEATURES);
                    gateway.send(next.fetch_add(now, Ordering::Relaxed), now).await?;
                    left -= now;
                }
                gateway.all_served().await?;
                serving.end().await?;
                gateway.store.close().await?;
                Ok::<_, crate::Failure>(())
            })
        }));
    }
    for thread in running {
        thread.join().map_err(|_| "a gateway failed")??;
    }
    Ok(figures(events, watch, &meter))
}

pub(crate) fn gateways(size: Size) -> Done<()> {
    let server = Postgres::start(&SETTINGS);
    let process = postmaster(&server)?;
    let next = Arc::new(AtomicU64::new(0));
    let (mut one, mut two) = (Vec::new(), Vec::new());
    println!("Gateways: {} events a turn, accepted and delivered", size.events);
    for _ in 0..size.rounds {
        one.push(serve_all(&server, process, 1, &next, size.events)?);
        two.push(serve_all(&server, process, 2, &next, size.events)?);
    }
    print("  one", &one);
    print("  two", &two);
    let cpu = |turn: &Turn| turn.own_cpu + turn.server_cpu;
    println!("    CPU with two {:.0} % of that with one", ratio(&two, &one, cpu));
    Ok(())
}
