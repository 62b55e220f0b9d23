//! What looking for near-duplicates costs: a store and a GeoPackage are filled with live candidates, then further events are
//! delivered, with `near` and without, side by side: events a second, and processor time for each event delivered.
//!
//! Usage: `near FOLDER [--kind points|parcels] [--candidates 1000000] [--measured 100000] [--rounds 3] [--store URL]`
//! The folder is made and left; one side's files are in `with`, the other's in `without`.

#![expect(clippy::print_stdout, reason = "it prints a report")]

use geonce::clock::{Stopwatch, SystemClock};
use geonce::delivery::near::{Action, Near, Scope};
use geonce::delivery::{Delivery, Destination, Unobserved, WORKERS, run};
use geonce::intake::{Arrival, FeatureReceipt, Intake, Source};
use geonce::sink::{self, Sink};
use geonce::store::{self, Access, Options, Store};
use geonce_bench::arguments::Arguments;
use geonce_bench::measure::{count, cpu_seconds};
use geonce_bench::points;
use geonce_key::Policy;
use geonce_key::near::Measure;
use geonce_key::split::Format;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Done<T> = Result<T, Failure>;

/// Features of one request.
const REQUEST_FEATURES: u64 = 1_000;
/// Events that wait at most while a side is filled.
const FILL_STEP: u64 = 50_000;
/// A parcel of some twenty metres: its vertices from its middle, in units of 10⁻⁷ degree.
const PARCEL: [(i64, i64); 12] = [
    (1_000, 0),
    (866, 500),
    (500, 866),
    (0, 1_000),
    (-500, 866),
    (-866, 500),
    (-1_000, 0),
    (-866, -500),
    (-500, -866),
    (0, -1_000),
    (500, -866),
    (866, -500),
];

/// One side: a gateway without its HTTP.
struct Side {
    name: &'static str,
    store: Arc<dyn Store>,
    sink: Arc<dyn Sink>,
    intake: Intake,
    source: Arc<Source>,
    near: Option<Near>,
    parcels: bool,
    next: u64,
}

/// What one turn came to.
struct Turn {
    per_second: f64,
    /// Microseconds for each event.
    cpu: f64,
}

impl Side {
    fn open(folder: &Path, name: &'static str, near: Option<Near>, parcels: bool, store: Option<&str>) -> Done<Side> {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder)?;
        let store = store.map_or_else(|| "sqlite:geonce.db".to_owned(), |url| format!("{url}?schema={name}"));
        let store = store::open(&store, &Options::default(), Access::Gateway, &folder)?;
        let sink = sink::open("written", "gpkg:written.gpkg", &sink::Options::default(), &folder)?;
        let source = Arc::new(Source::new("fleet", Policy::default(), &["written".to_owned()])?);
        let intake = Intake::new(Arc::clone(&store), Arc::new(SystemClock));
        Ok(Side { name, store, sink, intake, source, near, parcels, next: 0 })
    }

    /// Has so many events recorded.
    async fn send(&mut self, events: u64) -> Done<()> {
        let end = self.next + events;
        while self.next < end {
            let last = (self.next + REQUEST_FEATURES).min(end);
            let mut body = Vec::new();
            for number in self.next..last {
                if self.parcels {
                    parcel(number, &mut body);
                } else {
                    points::write(1, number, &mut body);
                }
                body.push(b'\n');
            }
            let arrival = Arrival { body: body.into(), format: Format::Lines, ..Arrival::default() };
            let receipt = self.intake.receive(&self.source, arrival).await.map_err(|_| "refused")?;
            if receipt.features.iter().any(|feature| !matches!(feature, FeatureReceipt::Accepted { .. })) {
                return Err("an event was known before it was made".into());
            }
            self.next = last;
        }
        Ok(())
    }

    /// Delivers everything that waits.
    async fn deliver(&self, events: u64) -> Done<Turn> {
        let (cpu, watch) = (cpu_seconds(), Stopwatch::start());
        let destination = Arc::new(Destination::new("written", Arc::clone(&self.sink)));
        let delivery = Arc::new(Delivery {
            store: Arc::clone(&self.store),
            clock: Arc::new(SystemClock),
            policies: [(Arc::from("fleet"), Policy::default())].into(),
            near: self.near.iter().map(|near| (Arc::from("fleet"), near.clone())).collect(),
            lateness: std::collections::HashMap::new(),
            lease: geonce::delivery::LEASE,
            holder: "bench".into(),
            observer: Arc::new(Unobserved),
            pressure: self.intake.pressure(),
        });
        let (stop, stopped) = watch::channel(false);
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| tokio::spawn(run(Arc::clone(&delivery), Arc::clone(&destination), stopped.clone())))
            .collect();
        while self.store.next_due("written".into()).await?.is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        stop.send_replace(true);
        for worker in workers {
            worker.await?;
        }
        let per_second = count(events) / watch.elapsed().as_secs_f64();
        Ok(Turn { per_second, cpu: 1e6 * (cpu_seconds() - cpu) / count(events) })
    }

    async fn turn(&mut self, events: u64) -> Done<Turn> {
        self.send(events).await?;
        self.deliver(events).await
    }
}

/// A parcel, somewhere.
fn parcel(number: u64, out: &mut Vec<u8>) {
    let (x, y) = points::position(1, number);
    let mut ring = String::new();
    for (dx, dy) in PARCEL.iter().chain(&PARCEL[..1]) {
        let (x, y) = (x + dx, y + dy);
        let sign = |value: i64| if value < 0 { "-" } else { "" };
        let part = |value: i64| format!("{}{}.{:07}", sign(value), value.abs() / 10_000_000, value.abs() % 10_000_000);
        _ = write!(ring, "{}[{},{}]", if ring.is_empty() { "" } else { "," }, part(x), part(y));
    }
    out.extend_from_slice(
        format!(
            "{{\"type\":\"Feature\",\"geometry\":{{\"type\":\"Polygon\",\"coordinates\":[[{ring}]]}},\"properties\":{{\"parcel\":{number}}}}}"
        )
        .as_bytes(),
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn main() -> Done<()> {
    let arguments = Arguments::read()?;
    let folder = Path::new(arguments.word(0)?).to_owned();
    let kind: String = arguments.value("kind", "points".to_owned())?;
    let candidates: u64 = arguments.value("candidates", 1_000_000)?;
    let measured: u64 = arguments.value("measured", 100_000)?;
    let rounds: usize = arguments.value("rounds", 3)?;
    let store: String = arguments.value("store", String::new())?;
    let store = Some(store.as_str()).filter(|url| !url.is_empty());
    let near = Near {
        measures: vec![(Measure::Vertex, 0.01)],
        within_metres: 50.0,
        period: Duration::from_hours(24),
        scope: Scope::Source,
        action: Action::Drop,
        ignore: Vec::new(),
    };
    let parcels = kind == "parcels";
    let mut sides = [
        Side::open(&folder, "without", None, parcels, store)?,
        Side::open(&folder, "with", Some(near), parcels, store)?,
    ];
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        for side in &mut sides {
            side.sink.check().await?;
            let watch = Stopwatch::start();
            while side.next < candidates {
                side.turn(FILL_STEP.min(candidates - side.next)).await?;
            }
            println!("{}: {} {kind} in {:.0} s", side.name, side.next, watch.elapsed().as_secs_f64());
        }
        let mut turns: [Vec<Turn>; 2] = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            // Who goes first changes.
            for place in [round % 2, 1 - round % 2] {
                let turn = sides[place].turn(measured).await?;
                println!("{:8} {:>8.0} events/s {:>7.1} µs", sides[place].name, turn.per_second, turn.cpu);
                turns[place].push(turn);
            }
        }
        let [without, with] = turns.map(|turns| {
            let rate = median(turns.iter().map(|turn| turn.per_second).collect());
            (rate, median(turns.iter().map(|turn| turn.cpu).collect()))
        });
        println!(
            "{kind}, {candidates} candidates: without {:.0}/s {:.1} µs, with {:.0}/s {:.1} µs: CPU × {:.2}",
            without.0,
            without.1,
            with.0,
            with.1,
            with.1 / without.1
        );
        for side in &sides {
            side.store.close().await?;
        }
        Ok(())
    })
}
