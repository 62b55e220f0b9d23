//! From settings to a running gateway: opens store and sinks, starts the receiver and the workers, and ends them in order.
//!
//! Workers have a thread of their own: decoding a large batch must not hold up an acknowledgement.

use crate::api::{Access as ApiAccess, Api, Stream, token};
use crate::client::LeftAddress;
use crate::config::{
    FetchSettings, Likeness, OnStoreDown, Settings, SinkSettings, SourceSettings, StoreSettings, VerifySettings,
};
use crate::failure::{Failure, Outcome};
use crate::serve::metrics::Metrics;
use crate::serve::{self, Check, Gateway, Health, Listeners, Parts, Route, logs};
use geonce::cache::{self, Cached};
use geonce::changes;
use geonce::clock::{Clock, SystemClock};
use geonce::delivery::near::Near;
use geonce::delivery::{self, Delivery, Destination, Observer, WORKERS};
use geonce::error::Kind;
use geonce::event::{Cause, EventId};
use geonce::intake::{Announced, Intake, Source};
use geonce::sink;
use geonce::store::spill::{self, Journal};
use geonce::store::{self, Access, Store};
use std::collections::{HashMap, HashSet};
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// How long workers may take to finish what is in their hands.
const WORKERS_STOP_WITHIN: Duration = Duration::from_secs(20);

/// How long what the API began may take to finish.
const API_STOPS_WITHIN: Duration = Duration::from_secs(5);

/// How long a sink may take to answer at the start: nobody is acknowledged meanwhile.
const SINK_CHECK_MAX: Duration = Duration::from_secs(3);

/// How often the store is swept, and how much of it at a time.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
const SWEEP_EVENTS_MAX: usize = 2_000;

/// Serves until a signal says to stop.
pub(crate) fn run(settings: &Settings) -> Outcome {
    logs::start(settings.log, &settings.instance);
    for notice in &settings.notices {
        tell(notice);
    }
    create_folder(&settings.data)?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(receive_threads())
        .enable_all()
        .thread_name("receive")
        .build()
        .map_err(|error| Failure::io("starting threads", &error))?;
    // First of all: an address that is taken is found before anything is opened, and nobody takes it meanwhile.
    let listeners = runtime.block_on(listen(settings))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let api_address = listeners.api_address().map_err(|error| Failure::io("listening", &error))?;
    let store = open_store(settings, &runtime, &clock)?;
    // Not before the store is ours: another gateway may be running on it, and have left its own.
    let address = leave_address(&settings.data, api_address);
    let cached = cached(settings, &store, &clock)?;
    let store: Arc<dyn Store> = cached.as_ref().map_or(store, |cached| Arc::clone(cached) as Arc<dyn Store>);
    let fetching: Vec<String> = fetching(settings).map(|(name, _)| changes::sink_name(name)).collect();
    let sinks = settings.sinks.keys().chain(&fetching).map(String::as_str);
    let metrics = Metrics::new(settings.sources.keys().map(String::as_str), sinks);
    metrics.show_cache(cached.as_ref());
    let routes: Vec<Route> =
        settings.sources.iter().map(|(name, source)| route(name, source, settings)).collect::<Result<_, _>>()?;
    let destinations = destinations(settings, &runtime)?;
    let fetchers = fetchers(settings, &routes, &store, &clock)?;
    let intake = Intake::new(Arc::clone(&store), Arc::clone(&clock));
    let pressure = intake.pressure();
    let api_runtime = api_runtime()?;
    let stream = Stream::new(clock.now().millis().unsigned_abs());
    let mut api =
        Api::new(api_access(settings)?, api_runtime.handle().clone(), Arc::clone(&stream), &settings.instance);
    api.likenesses = likenesses(settings);
    let gateway = Gateway::new(Parts {
        store: Arc::clone(&store),
        intake,
        clock: Arc::clone(&clock),
        routes,
        limits: settings.limits.receiver.clone(),
        checks: destinations.iter().chain(&fetchers).map(check).chain(cached.as_ref().map(cache_check)).collect(),
        metrics: Arc::clone(&metrics),
        api,
    });
    let delivery = Delivery {
        store: Arc::clone(&store),
        clock: Arc::clone(&clock),
        policies: settings.sources.iter().map(|(name, s)| (Arc::from(name.as_str()), s.policy.clone())).collect(),
        near: near(settings),
        lateness: lateness(settings),
        lease: settings.store.lease,
        holder: settings.instance.as_str().into(),
        observer: Arc::new(Observers { metrics, stream }),
        pressure,
    };
    let announcements = Arc::new(of_announcements(settings, &delivery));
    let delivery = Arc::new(delivery);
    let (stop, stopped) = watch::channel(false);
    let serving = destinations.iter().map(|destination| (Arc::clone(&delivery), Arc::clone(destination)));
    let fetching = fetchers.iter().map(|fetcher| (Arc::clone(&announcements), Arc::clone(fetcher)));
    let workers = start_workers(&delivery, serving.chain(fetching).collect(), stopped)?;
    tracing::info!(listen = %settings.listen, data = %settings.data.display(), "ready");
    let drained = runtime.block_on(serve::run(Arc::new(gateway), listeners, until_told()));
    drop(address);
    tracing::info!("stopping");
    stop.send_replace(true);
    // A job that is cut off here can be planned again: each of its steps is whole.
    api_runtime.shutdown_timeout(API_STOPS_WITHIN);
    wait_for(workers);
    runtime.block_on(async {
        for destination in destinations.iter().chain(&fetchers) {
            if let Err(error) = destination.sink.close().await {
                tracing::warn!(sink = &*destination.name, %error, "closing the sink");
            }
        }
        store.close().await
    })?;
    tracing::info!("stopped");
    Ok(drained.cut_off == 0)
}

/// Half of the processors receive, the others keep and deliver: on two, a second receiving thread was measured to cost
/// more in hand-overs than it brought.
fn receive_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |count| (count.get() / 2).max(1))
}

/// Said to a person in red, to a program in its log.
fn tell(notice: &str) {
    let red = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if red {
        eprintln!("\x1b[31m{notice}\x1b[0m");
    } else {
        tracing::warn!("{notice}");
    }
}

/// Takes the addresses that the gateway listens on.
async fn listen(settings: &Settings) -> Result<Listeners, Failure> {
    let bind = async |address: SocketAddr, hint: &str| {
        let bound = TcpListener::bind(address).await;
        bound.map_err(|error| Failure::io(&format!("listening on {address}"), &error).hint(hint))
    };
    let senders = bind(settings.listen, "choose another address with --listen").await?;
    let api = match settings.api.listen {
        Some(address) => Some(bind(address, "choose another address with listen in [api]").await?),
        None => None,
    };
    Ok(Listeners { senders, api })
}

/// Where requests of the API are handled: a thread that has what acknowledging leaves of the processor.
fn api_runtime() -> Result<Runtime, Failure> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .thread_name("api")
        .on_thread_start(geonce::background::yield_to_others)
        .build()
        .map_err(|error| Failure::io("starting threads", &error))
}

/// Who may ask: whoever has the token that is configured, or the one in the data folder.
fn api_access(settings: &Settings) -> Result<ApiAccess, Failure> {
    let secret = if let Some((secret, _)) = &settings.api.token {
        secret.clone()
    } else {
        let (secret, file) = token::own(&settings.data)?;
        tracing::info!(file = %file.display(), "the token of the API");
        secret
    };
    Ok(ApiAccess::new(secret, settings.api.remote, settings.api.listen.is_some())?)
}

/// Leaves the API's address for tools. That it cannot be written is no reason not to start: they do without.
fn leave_address(data: &Path, address: SocketAddr) -> Option<LeftAddress> {
    let left = LeftAddress::leave(data, address);
    left.inspect_err(|failure| tracing::warn!("commands will not find this gateway: {}", failure.message())).ok()
}

fn create_folder(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::io(&folder.display().to_string(), &error))
}

/// The journal's file, in the data folder.
pub(crate) const JOURNAL: &str = "spill.db";

/// Opens the store; with a journal before it, if a source goes on while the store is down, or did when the gateway last
/// ran: what was kept then is brought now.
fn open_store(settings: &Settings, runtime: &Runtime, clock: &Arc<dyn Clock>) -> Result<Arc<dyn Store>, Failure> {
    let StoreSettings { url, options, spill_bytes_max, .. } = settings.store.clone();
    let data = settings.data.clone();
    let file = data.join(JOURNAL);
    let sources: HashSet<Arc<str>> = settings
        .sources
        .iter()
        .filter(|(_, source)| source.on_store_down == OnStoreDown::Spill)
        .map(|(name, _)| Arc::from(name.as_str()))
        .collect();
    let open = move || store::open(&url, &options, Access::Gateway, &data);
    if sources.is_empty() && !file.exists() {
        return Ok(open()?);
    }
    let _inside = runtime.enter();
    let journal = Journal { file: &file, bytes_max: spill_bytes_max, sources };
    Ok(spill::open(Arc::new(open), journal, Arc::clone(clock))?)
}

/// Opens every sink. One that cannot be reached is tried again later; one that can never work ends the start.
fn destinations(settings: &Settings, runtime: &Runtime) -> Result<Vec<Arc<Destination>>, Failure> {
    let mut destinations = Vec::new();
    for (name, settings_of_sink) in &settings.sinks {
        let SinkSettings { url, options, entity, retry, .. } = settings_of_sink;
        let sink = sink::open(name, url, options, &settings.data)?;
        let checked = runtime.block_on(async { tokio::time::timeout(SINK_CHECK_MAX, sink.check()).await });
        let silent = |_| Err(geonce::Error::new(Kind::Unavailable, format!("the sink {name} does not answer")));
        match checked.unwrap_or_else(silent) {
            Ok(notices) => notices.iter().for_each(|notice| tracing::info!(sink = name, "{notice}")),
            Err(error) if error.is_transient() => {
                tracing::warn!(sink = name, %error, "the sink cannot be reached; its events wait");
            }
            Err(error) => return Err(Failure::from(error).within(&format!("sink {name}"))),
        }
        let mut destination = Destination::new(name, sink);
        destination.retry = *retry;
        destination.entity.clone_from(entity);
        destinations.push(Arc::new(destination));
    }
    Ok(destinations)
}

/// The sources whose announced changes are fetched.
fn fetching(settings: &Settings) -> impl Iterator<Item = (&String, &FetchSettings)> {
    settings.sources.iter().filter_map(|(name, source)| Some((name, source.fetch.as_ref()?)))
}

/// The sinks that announcements go to: they fetch the changes, which come in as events of the same source.
pub(crate) fn fetchers(
    settings: &Settings,
    routes: &[Route],
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<Arc<Destination>>, Failure> {
    let mut fetchers = Vec::new();
    for (name, FetchSettings { options, retry, .. }) in fetching(settings) {
        let Some(route) = routes.iter().find(|route| *route.source.name == **name) else { continue };
        let intake = Intake::new(Arc::clone(store), Arc::clone(clock));
        let sink = changes::open(Arc::clone(&route.source), intake, options)?;
        let mut destination = Destination::new(&changes::sink_name(name), sink);
        destination.retry = *retry;
        destination.batch_events_max = changes::BATCH_EVENTS_MAX;
        fetchers.push(Arc::new(destination));
    }
    Ok(fetchers)
}

/// How announcements are delivered: as all events are, but what a source says of its features does not concern them.
pub(crate) fn of_announcements(settings: &Settings, delivery: &Delivery) -> Delivery {
    let policy = |name: &String| {
        let source = &settings.sources[name];
        (Arc::from(name.as_str()), Announced::new(&source.policy, &changes::sink_name(name)).policy)
    };
    Delivery {
        store: Arc::clone(&delivery.store),
        clock: Arc::clone(&delivery.clock),
        policies: fetching(settings).map(|(name, _)| policy(name)).collect(),
        near: HashMap::new(),
        lateness: HashMap::new(),
        lease: delivery.lease,
        holder: Arc::clone(&delivery.holder),
        observer: Arc::clone(&delivery.observer),
        pressure: Arc::clone(&delivery.pressure),
    }
}

/// How late events may come, of the sources that say so.
pub(crate) fn lateness(settings: &Settings) -> HashMap<Arc<str>, Duration> {
    let of = |(name, source): (&String, &SourceSettings)| Some((Arc::from(name.as_str()), source.lateness?));
    settings.sources.iter().filter_map(of).collect()
}

/// A source as it is configured, ready to be served.
pub(crate) fn route(name: &str, settings: &SourceSettings, all: &Settings) -> Result<Route, Failure> {
    let mut source = Source::new(name, settings.policy.clone(), &settings.sinks)?;
    let route = |sink: &String| store::Route {
        sink: sink.as_str().into(),
        after: all.sinks.get(sink).and_then(|sink| sink.after.as_deref()).map(Arc::from),
    };
    source.routes = settings.sinks.iter().map(route).collect();
    source.ordered = settings.ordered;
    source.identify = settings.identify;
    source.preset = settings.preset.clone();
    source.invalid = settings.invalid;
    source.announced = settings.fetch.as_ref().map(|_| Announced::new(&settings.policy, &changes::sink_name(name)));
    source.features_max = all.limits.features_max;
    source.verify = settings.verify.as_ref().map(VerifySettings::verifier).transpose()?;
    Ok(Route {
        source: Arc::new(source),
        fresh_status: settings.fresh_status,
        ack_within: settings.ack_within,
        body_bytes_max: settings.body_bytes_max,
    })
}

fn check(destination: &Arc<Destination>) -> Check {
    let asked = Arc::clone(destination);
    Check {
        name: format!("sink {}", destination.name),
        required: false,
        ask: Box::new(move || {
            let held_back = asked.is_held_back();
            let detail = if held_back { "cannot be reached; its events wait" } else { "ok" };
            Box::pin(async move { Ok(Health { ok: !held_back, detail: detail.to_owned() }) })
        }),
    }
}

/// Puts the cache before the store, if there is one. That it cannot be reached is no reason not to start.
fn cached(settings: &Settings, store: &Arc<dyn Store>, clock: &Arc<dyn Clock>) -> Result<Option<Arc<Cached>>, Failure> {
    let Some(cache) = &settings.cache else { return Ok(None) };
    let cache = cache.settings(settings.store.options.window, &settings.sources);
    Ok(Some(cache::open(Arc::clone(store), &cache, Arc::clone(clock))?))
}

fn cache_check(cached: &Arc<Cached>) -> Check {
    let asked = Arc::clone(cached);
    Check {
        name: "cache".to_owned(),
        required: false,
        ask: Box::new(move || {
            let condition = asked.condition();
            let detail = match (condition.reachable, condition.warm) {
                (true, true) => "ok",
                (true, false) => "ok; its filter is being filled",
                (false, _) => "does not answer; the store is asked instead",
            };
            Box::pin(async move { Ok(Health { ok: condition.reachable, detail: detail.to_owned() }) })
        }),
    }
}

/// Which sources look for near-duplicates, and how.
fn near(settings: &Settings) -> HashMap<Arc<str>, Near> {
    let sources = settings.sources.iter();
    sources.filter_map(|(name, source)| Some((Arc::from(name.as_str()), source.near.clone()?))).collect()
}

/// What makes payloads alike, of the sources that look for near-duplicates.
fn likenesses(settings: &Settings) -> HashMap<String, Likeness> {
    let likeness = |(name, source): (&String, &SourceSettings)| {
        let near = Some(source.near.clone()?);
        let entity = source.sinks.first().and_then(|sink| settings.sinks.get(sink)?.entity.clone());
        Some((name.clone(), Likeness { policy: source.policy.clone(), near, entity }))
    };
    settings.sources.iter().filter_map(likeness).collect()
}

/// Runs all workers and the sweeper in one thread until they are stopped.
fn start_workers(
    delivery: &Delivery,
    serving: Vec<(Arc<Delivery>, Arc<Destination>)>,
    stopped: watch::Receiver<bool>,
) -> Result<JoinHandle<()>, Failure> {
    let io = |error: std::io::Error| Failure::io("starting threads", &error);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(io)?;
    let (store, clock) = (Arc::clone(&delivery.store), Arc::clone(&delivery.clock));
    let work = move || {
        geonce::background::yield_to_others();
        runtime.block_on(async move {
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(sweep(store, clock, stopped.clone()));
            for (delivery, destination) in serving {
                for _ in 0..WORKERS {
                    tasks.spawn(delivery::run(Arc::clone(&delivery), Arc::clone(&destination), stopped.clone()));
                }
            }
            // A worker that panics would leave its sink unserved: end as a whole, and be started again.
            while let Some(ended) = tasks.join_next().await {
                if let Err(error) = ended
                    && error.is_panic()
                {
                    tracing::error!("a worker failed in a way that is our fault; stopping");
                    std::process::abort();
                }
            }
        });
    };
    std::thread::Builder::new().name("deliver".to_owned()).spawn(work).map_err(io)
}

fn wait_for(workers: JoinHandle<()>) {
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = workers.join();
        let _ = done.send(());
    });
    if finished.recv_timeout(WORKERS_STOP_WITHIN).is_err() {
        tracing::warn!("a sink is still busy; what it was given is delivered again after the next start");
    }
}

/// Forgets what is past its time, a little at a time.
async fn sweep(store: Arc<dyn Store>, clock: Arc<dyn Clock>, mut stopped: watch::Receiver<bool>) {
    while !*stopped.borrow() {
        let wait = match store.sweep(SWEEP_EVENTS_MAX, clock.now()).await {
            Ok(swept) if swept.more => Duration::from_millis(50),
            Ok(_) => SWEEP_EVERY,
            Err(error) => {
                tracing::warn!(%error, "sweeping the store");
                SWEEP_EVERY
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    }
}

/// Whoever wants to know what happens at sinks.
struct Observers {
    metrics: Arc<Metrics>,
    stream: Arc<Stream>,
}

impl Observer for Observers {
    fn attempt(&self, sink: &str, event: EventId, result: &'static str, cause: Option<&Cause>) {
        self.metrics.attempts(sink, result, 1);
        self.stream.attempted(sink, event, result, cause);
    }

    fn wrote(&self, sink: &str, _events: usize, took: Duration) {
        self.metrics.wrote(sink, took);
    }

    fn trouble(&self, sink: &str, error: &geonce::Error) {
        if let Some(more) = self.metrics.troubles_logged.now() {
            tracing::warn!(sink, %error, kind = error.kind().as_str(), hint = error.hint_text(), more, "delivery is held up");
        }
    }
}

/// Ctrl-C, or the signal by which service managers stop us.
async fn until_told() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
        if let (Ok(mut terminate), Ok(mut interrupt)) = signals {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            return;
        }
    }
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
