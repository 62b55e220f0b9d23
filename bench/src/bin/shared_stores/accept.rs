//! Accepting into `PostgreSQL`, beside raw upserts: the same events, connections and group commit, one table with one index.

use crate::{Done, Failure, Meter, SETTINGS, Size, Turn, postmaster, print, ratio};
use bytes::Bytes;
use geonce::clock::{Clock, Stopwatch, SystemClock};
use geonce::event::Ids;
use geonce::store::{self, Access, Admission, NewEvent, Options, Route, Store, Verdict};
use geonce_bench::measure::{Latencies, count};
use geonce_bench::points;
use geonce_key::{Fingerprint, Form};
use geonce_services::Postgres;
use sha2::{Digest, Sha256};
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_postgres::Statement;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// Connections on which the store records; the raw side has as many.
const LANES: usize = 3;
/// Events of one transaction at most, on both sides.
const GROUP_EVENTS_MAX: usize = 2_048;
/// Batches in flight, and events in each.
pub(crate) const SHAPES: [(usize, u64); 4] = [(64, 1), (256, 1), (64, 32), (16, 1_000)];

const TABLE: &str =
    "CREATE TABLE raw (key uuid PRIMARY KEY, event uuid NOT NULL, source text NOT NULL, received bigint NOT NULL,
    form smallint NOT NULL, digests bytea NOT NULL, content bytea NOT NULL, payload bytea NOT NULL)";
const UPSERT: &str =
    "INSERT INTO raw SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::smallint[],
    $6::bytea[], $7::bytea[], $8::bytea[]) ON CONFLICT (key) DO NOTHING";

/// Makes events, each a new one.
pub(crate) struct Maker {
    ids: Ids,
    next: AtomicU64,
    source: Arc<str>,
    routes: Arc<[Route]>,
}

impl Maker {
    pub(crate) fn new() -> Maker {
        Maker { ids: Ids::new(), next: AtomicU64::new(0), source: "fleet".into(), routes: [Route::to("map")].into() }
    }

    pub(crate) fn batch(&self, size: u64) -> Vec<NewEvent> {
        let first = self.next.fetch_add(size, Ordering::Relaxed);
        (first..first + size).map(|number| self.event(number)).collect()
    }

    fn event(&self, number: u64) -> NewEvent {
        let mut payload = Vec::with_capacity(256);
        points::write(1, number, &mut payload);
        let digest: [u8; 32] = Sha256::digest(&payload).into();
        NewEvent {
            id: self.ids.next(SystemClock.now()),
            source: Arc::clone(&self.source),
            key: Fingerprint::from_digest(digest, false),
            aliases: Vec::new(),
            spatial: Vec::new(),
            content: digest,
            form: Form::Json,
            crs: None,
            order: None,
            payload: Bytes::from(payload),
            admission: Admission::Deliver(Arc::clone(&self.routes)),
        }
    }
}

/// Sixteen bytes as a uuid.
#[derive(Debug)]
struct Id([u8; 16]);

impl ToSql for Id {
    fn to_sql(&self, _: &Type, out: &mut bytes::BytesMut) -> Result<IsNull, Failure> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

struct Ask {
    batch: Vec<NewEvent>,
    done: oneshot::Sender<()>,
}

/// The raw side: what waits goes into one statement, on as many connections as the store has.
pub(crate) struct Raw(mpsc::Sender<Ask>);

impl Raw {
    async fn new(url: &str) -> Done<Raw> {
        let (asks, waiting) = mpsc::channel(4_096);
        let waiting = Arc::new(Mutex::new(waiting));
        for lane in 0..LANES {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            if lane == 0 {
                client.batch_execute(TABLE).await?;
            }
            let statement = client.prepare(UPSERT).await?;
            let waiting = Arc::clone(&waiting);
            tokio::spawn(async move {
                while let Some(asks) = gathered(&waiting).await {
                    if let Err(error) = upsert(&client, &statement, &asks).await {
                        eprintln!("{error}");
                        return;
                    }
                    // A task that has gone does not want its answer.
                    for ask in asks {
                        let _ = ask.done.send(());
                    }
                }
            });
        }
        Ok(Raw(asks))
    }

    async fn accept(&self, batch: Vec<NewEvent>) -> Done<()> {
        let (done, answer) = oneshot::channel();
        self.0.send(Ask { batch, done }).await.map_err(|_| "the lanes have ended")?;
        Ok(answer.await?)
    }
}

async fn gathered(waiting: &Mutex<mpsc::Receiver<Ask>>) -> Option<Vec<Ask>> {
    let mut waiting = waiting.lock().await;
    let mut asks = vec![waiting.recv().await?];
    let mut events = asks[0].batch.len();
    while events < GROUP_EVENTS_MAX
        && let Ok(ask) = waiting.try_recv()
    {
        events += ask.batch.len();
        asks.push(ask);
    }
    Some(asks)
}

async fn upsert(client: &tokio_postgres::Client, statement: &Statement, asks: &[Ask]) -> Done<()> {
    let events = || asks.iter().flat_map(|ask| &ask.batch);
    let mut sorted: Vec<&NewEvent> = events().collect();
    sorted.sort_unstable_by_key(|event| event.key.key());
    let events = sorted;
    let keys: Vec<Id> = events.iter().map(|event| Id(event.key.key())).collect();
    let ids: Vec<Id> = events.iter().map(|event| Id(event.id.to_bytes())).collect();
    let sources: Vec<&str> = events.iter().map(|event| &*event.source).collect();
    let received: Vec<i64> = events.iter().map(|event| event.id.time().millis()).collect();
    let forms = vec![0i16; events.len()];
    let digests: Vec<&[u8]> = events.iter().map(|event| &event.key.digest()[..]).collect();
    let contents: Vec<&[u8]> = events.iter().map(|event| &event.content[..]).collect();
    let payloads: Vec<&[u8]> = events.iter().map(|event| &event.payload[..]).collect();
    let parameters: [&(dyn ToSql + Sync); 8] =
        [&keys, &ids, &sources, &received, &forms, &digests, &contents, &payloads];
    let new = client.execute(statement, &parameters).await?;
    if usize::try_from(new)? == events.len() { Ok(()) } else { Err("an event was known before it was made".into()) }
}

/// Has batches accepted by `accept`, so many at once, for some seconds.
pub(crate) async fn turn<F>(
    server: u32,
    seconds: f64,
    (waiting, size): (usize, u64),
    maker: &Arc<Maker>,
    accept: impl Fn(Vec<NewEvent>) -> F + Clone + Send + Sync + 'static,
) -> Done<Turn>
where
    F: Future<Output = Done<()>> + Send,
{
    let (meter, watch) = (Meter::start(server), Stopwatch::start());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..waiting {
        let (maker, accept) = (Arc::clone(maker), accept.clone());
        tasks.spawn(async move {
            let mut latencies = Latencies::default();
            while watch.elapsed().as_secs_f64() < seconds {
                let (batch, waited) = (maker.batch(size), Stopwatch::start());
                accept(batch).await?;
                latencies.add(waited.elapsed());
            }
            Ok::<_, Failure>(latencies)
        });
    }
    let mut latencies = Latencies::default();
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done??);
    }
    let events = latencies.len() as u64 * size;
    let (own_cpu, server_cpu) = meter.each(events);
    let per_second = count(events) / watch.elapsed().as_secs_f64();
    let (p50_ms, p99_ms) = (latencies.milliseconds_at(500), latencies.milliseconds_at(990));
    Ok(Turn { per_second, own_cpu, server_cpu, p50_ms, p99_ms })
}

/// Events accepted by a store.
pub(crate) fn by(
    store: &Arc<dyn Store>,
) -> impl Fn(Vec<NewEvent>) -> geonce::store::Answer<'static, ()> + Clone + use<> {
    let store = Arc::clone(store);
    move |batch| {
        let store = Arc::clone(&store);
        Box::pin(async move {
            let verdicts = store.accept(batch, SystemClock.now()).await?;
            assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted), "known before it was made");
            Ok(())
        })
    }
}

pub(crate) fn compare(size: Size) -> Done<()> {
    let server = Postgres::start(&SETTINGS);
    let process = postmaster(&server)?;
    let url = server.database();
    let store = store::open(&url, &Options::default(), Access::Gateway, Path::new("."))?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let raw = Arc::new(Raw::new(&url).await?);
        let maker = Arc::new(Maker::new());
        println!("PostgreSQL: accepting, {LANES} connections");
        for shape in SHAPES {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..size.rounds {
                let raw = Arc::clone(&raw);
                let upsert = move |batch| {
                    let raw = Arc::clone(&raw);
                    async move { raw.accept(batch).await }
                };
                theirs.push(turn(process, size.seconds, shape, &maker, upsert).await?);
                let accept = by(&store);
                let accept = move |batch| {
                    let accepted = accept(batch);
                    async move { Ok(accepted.await?) }
                };
                ours.push(turn(process, size.seconds, shape, &maker, accept).await?);
            }
            print(&format!("  {} × {}: raw upsert", shape.0, shape.1), &theirs);
            print(&format!("  {} × {}: store", shape.0, shape.1), &ours);
            let cpu = |turn: &Turn| turn.own_cpu + turn.server_cpu;
            println!(
                "    rate {:.0} % of raw, server CPU {:.0} %, all CPU {:.0} %",
                ratio(&ours, &theirs, |turn| turn.per_second),
                ratio(&ours, &theirs, |turn| turn.server_cpu),
                ratio(&ours, &theirs, cpu)
            );
        }
        store.close().await?;
        Ok(())
    })
}
