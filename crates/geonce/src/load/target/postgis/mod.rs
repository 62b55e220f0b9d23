//! A PostGIS table as the destination of a load: one transaction, or one for each part.
//!
//! A table that the load makes is there for others when the load is; its indexes are made after its rows. To a table that was
//! there before, columns are added first, in a transaction of their own, because that keeps everybody else from reading it.
//! Rows: `rows`, `write`; entities: `upsert`; taking the place of a table: `replace`; the record: `record`.

mod known;
mod record;
mod replace;
mod rows;
mod upsert;
mod write;

use super::known::Known;
use super::slots::Slots;
use super::{Mode, Piece, Plan, Refused, Standing, Tally, Target, decide_crs};
use crate::error::{Error, Kind, Result};
use crate::postgres::{Address, Patience, Pool, Session, Tries, Trouble, check_name, lock_number};
use crate::sink::columns::Change;
use crate::sink::postgis::guard::{Guard, read};
use crate::sink::postgis::layer::{self, CHANGE_WAIT_MILLIS_MAX, Ground, LOCK, Layer};
use crate::sink::postgis::{Settings, types};
use crate::sink::{Columns, Isolation};
use crate::store::Answer;
use record::{Record, Records};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Statement;
use tokio_postgres::types::Type;
use write::{Route, gone};

type Told<T> = std::result::Result<T, Trouble>;

/// How long one statement may take that grows with the load, such as making an index.
const WORK_MAX: Duration = Duration::from_hours(12);
/// How long a transaction may stand idle at least: the file is read meanwhile.
const IDLE_MIN: Duration = Duration::from_mins(10);
/// One for the load, and one for looking.
const CONNECTIONS_MAX: usize = 2;
const SCHEMA: &str = "public";

struct PostGis {
    /// `None` where the load is finished, and after an error.
    load: Option<Load>,
    known: Known,
    standing: Standing,
    crs: u32,
    place: String,
}

/// A load under way.
struct Load {
    pool: Pool,
    plan: Plan,
    /// The layer.
    settings: Settings,
    /// The table that rows go into: the layer, or what will take its place.
    into: Settings,
    /// Whether the layer stays what it is when its rows are replaced.
    refills: bool,
    records: Records,
    record: Record,
    /// The number of the layer; `layer` has that of the table that rows go into.
    id: i32,
    layer: Layer,
    slots: Slots,
    /// What the layer holds of its entities, as long as no other load can write.
    known: Known,
    part: Option<Part>,
}

/// A transaction under way.
struct Part {
    session: Session,
    /// The COPY that rows were sent to last, and its text.
    copy: Option<(String, Statement)>,
    route: Route,
    /// Whether rows are numbered by a sequence.
    has_sequence: bool,
    /// What is said before the next savepoint.
    before: &'static str,
    tally: Tally,
}

impl Part {
    fn new(session: Session) -> Part {
        // A constraint that its owner deferred would be checked at the end, when nobody knows which row it was.
        Part {
            session,
            copy: None,
            route: Route::Unknown,
            has_sequence: false,
            before: "SET CONSTRAINTS ALL IMMEDIATE; ",
            tally: Tally::default(),
        }
    }
}

/// Opens a table for a load.
pub(super) async fn open(url: &str, plan: Plan) -> Result<Box<dyn Target>> {
    let address = Address::parse(url)?;
    let (schema, layer) = match plan.layer.split_once('.') {
        Some((schema, layer)) => (schema.to_owned(), layer.to_owned()),
        None => (address.schema.clone().unwrap_or_else(|| SCHEMA.to_owned()), plan.layer.clone()),
    };
    for name in [&schema, &layer] {
        if check_name(name).is_err() || name.trim().is_empty() || name.starts_with("geonce_") {
            let what = format!("{:?} cannot be the name of a table", plan.layer);
            return Err(Error::new(Kind::Invalid, what).hint("a name such as \"parcels\" or \"cadastre.parcels\""));
        }
    }
    let patience = Patience { work: WORK_MAX, lock: plan.timeout, idle: plan.timeout.max(IDLE_MIN) };
    // Statements about thousands of entities look expensive enough to be compiled, which takes longer than they do.
    let pool = Pool::new(&address, CONNECTIONS_MAX)?.patient(&patience).with("jit", "off");
    let settings = Settings {
        schema,
        layer,
        mode: match plan.mode {
            Mode::Append | Mode::Replace => crate::sink::Mode::Append,
            Mode::Upsert { arrival } => crate::sink::Mode::Upsert { arrival },
        },
        columns: Arc::new(Columns::Auto { max: types::DIALECT.columns_max }),
        crs: 0,
        approximate_crs: false,
        isolation: Isolation::ReadCommitted,
        timeout: plan.timeout,
    };
    let place = settings.place();
    let mut tries = Tries::new();
    loop {
        match Load::open(&pool, &plan, &settings).await {
            Ok(Opened::Finished { standing, crs }) => {
                return Ok(Box::new(PostGis { load: None, known: Known::default(), standing, crs, place }));
            }
            Ok(Opened::UnderWay(load)) => {
                let (standing, crs) = (load.record.standing.clone(), load.settings.crs);
                return Ok(Box::new(PostGis { known: load.known.clone(), load: Some(*load), standing, crs, place }));
            }
            Err(trouble) => {
                let doing = format!("beginning to load into {place}");
                tries.again(trouble).await.map_err(|trouble| trouble.explain(&doing))?;
            }
        }
    }
}

enum Opened {
    Finished { standing: Standing, crs: u32 },
    UnderWay(Box<Load>),
}

/// What was found and made before the load begins.
struct Setup {
    settings: Settings,
    ground: Ground,
    record: Option<Record>,
    /// The layer that rows are added to, or that is emptied and filled.
    there: Option<(Layer, Slots)>,
    refills: bool,
}

/// Whether a load is in, and is not to be done again.
fn is_done(record: &Record, plan: &Plan) -> bool {
    record.standing.result.is_some() && !plan.again
}

impl Load {
    async fn open(pool: &Pool, plan: &Plan, settings: &Settings) -> Told<Opened> {
        let records = Records::new(&settings.schema, plan);
        let session = pool.begin().await?;
        let found = setup(&session, plan, settings, &records).await;
        let Setup { settings, ground, record, there, refills } = session.end(found).await?;
        let done = |record: Record| Opened::Finished { standing: record.standing, crs: settings.crs };
        if let Some(record) = record.filter(|record| is_done(record, plan)) {
            return Ok(done(record));
        }
        let session = pool.begin().await?;
        let record = records.claim(&session, plan).await?;
        if is_done(&record, plan) {
            session.end(Ok(())).await?;
            return Ok(done(record));
        }
        lock_layer(&session, plan, &settings).await?;
        let into = match plan.mode {
            Mode::Replace => replace::staging(plan, &settings),
            _ => settings.clone(),
        };
        let begun = begin(&session, plan, &settings, &into, &ground, (record, there, refills)).await?;
        let (record, mut layer, slots) = begun;
        if plan.mode == Mode::Replace {
            layer.id = Guard::new(&into.schema).layer(&session, &into.layer).await?;
        }
        let refills = plan.mode == Mode::Replace && !record.made;
        records.set(&session, &record).await?;
        Ok(Opened::UnderWay(Box::new(Load {
            pool: pool.clone(),
            plan: plan.clone(),
            settings,
            into,
            refills,
            records,
            record,
            id: ground.id,
            layer,
            slots,
            known: Known::expecting(plan.expected),
            part: Some(Part::new(session)),
        })))
    }

    /// The transaction, begun if none is.
    async fn part(&mut self) -> Told<&mut Part> {
        if self.part.is_none() {
            let session = self.pool.begin().await?;
            let record = self.records.claim(&session, &self.plan).await?;
            let there = layer::find_table(&session, &self.into).await?;
            if record.standing != self.record.standing || there.is_none() {
                let what = format!("another runner has gone on with the load into {}", self.settings.place());
                let error = Error::new(Kind::Unavailable, what).hint("one runner is enough; this one begins again");
                return Err(error.into());
            }
            lock_layer(&session, &self.plan, &self.settings).await?;
            self.part = Some(Part::new(session));
        }
        self.part.as_mut().ok_or_else(gone)
    }

    fn note(&mut self, features: u64, notes: Option<String>) {
        let tally = self.part.as_mut().map(|part| std::mem::take(&mut part.tally)).unwrap_or_default();
        let standing = &mut self.record.standing;
        standing.tally = standing.tally.plus(tally);
        standing.features = features;
        if let Some(notes) = notes {
            standing.notes = notes;
        }
    }

    /// Writes the record, and commits.
    async fn end(&mut self) -> Told<()> {
        let Some(mut part) = self.part.take() else { return Err(gone()) };
        self.known.forget();
        part.settle().await?;
        let Part { session, copy, .. } = part;
        drop(copy);
        let set = self.records.set(&session, &self.record).await;
        session.end(set).await
    }

    async fn write(&mut self, pieces: &[Piece]) -> Told<Vec<Refused>> {
        self.part().await?;
        match self.plan.mode {
            Mode::Append => self.append(pieces.iter()).await,
            Mode::Upsert { arrival } => self.upsert(pieces.iter(), arrival).await,
            Mode::Replace => {
                let (about, others): (Vec<&Piece>, Vec<&Piece>) =
                    pieces.iter().partition(|piece| piece.entity.is_some());
                let arrival = about.iter().all(|piece| piece.version.is_none());
                let mut refused = self.append(others.into_iter()).await?;
                if !about.is_empty() {
                    refused.extend(self.upsert(about.into_iter(), arrival).await?);
                }
                Ok(refused)
            }
        }
    }

    async fn commit(&mut self, features: u64, notes: String) -> Told<()> {
        self.part().await?;
        self.note(features, Some(notes));
        self.end().await
    }

    async fn finish(&mut self, features: u64, result: Box<dyn FnOnce(Tally) -> String + Send>) -> Told<Tally> {
        self.part().await?.settle().await?;
        if self.record.made {
            layer::create_indexes(self.session()?, &self.into, &self.layer.geometry).await?;
            self.record.made = false;
        }
        if self.plan.mode == Mode::Replace {
            self.take_place().await?;
        }
        self.note(features, None);
        let tally = self.record.standing.tally;
        self.record.standing.result = Some(result(tally));
        self.end().await?;
        Ok(tally)
    }

    fn session(&self) -> Told<&Session> {
        self.part.as_ref().map(|part| &part.session).ok_or_else(gone)
    }
}

/// Loads that compare entities with what is there come one after the other.
async fn lock_layer(session: &Session, plan: &Plan, settings: &Settings) -> Told<()> {
    if !matches!(plan.mode, Mode::Upsert { .. }) {
        return Ok(());
    }
    let number = lock_number(&format!("geonce load {}", settings.place()));
    session.execute("SELECT 1 FROM pg_advisory_xact_lock($1)", &[(&number, Type::INT8)]).await.map(drop)
}

/// Makes what the load rests on, and looks at what is there. Whatever is made or altered here stays.
async fn setup(session: &Session, plan: &Plan, settings: &Settings, records: &Records) -> Told<Setup> {
    session.execute("SELECT 1 FROM pg_advisory_xact_lock($1)", &[(&LOCK, Type::INT8)]).await?;
    // Whoever comes later waits behind us while we wait for the table.
    session.batch(&format!("SET LOCAL lock_timeout = {CHANGE_WAIT_MILLIS_MAX}")).await?;
    let mut settings = settings.clone();
    let ground = layer::prepare(session, &settings).await?;
    records.create(session).await?;
    let record = records.find(session).await?;
    let oid = layer::find_table(session, &settings).await?;
    let found = find_crs(session, &settings, &ground).await?;
    let place = settings.place();
    if record.as_ref().is_some_and(|record| is_done(record, plan)) {
        settings.crs = decide_crs(&place, found, None)?;
        return Ok(Setup { settings, ground, record, there: None, refills: false });
    }
    let refills = match oid {
        Some(oid) if plan.mode == Mode::Replace => !replace::is_plain(session, oid).await?,
        _ => false,
    };
    let swaps = plan.mode == Mode::Replace && !refills;
    settings.crs = match plan.crs {
        Some(crs) if swaps => decide_crs(&place, None, Some(crs))?,
        asked => decide_crs(&place, found, asked)?,
    };
    let there = match oid {
        Some(oid) if !swaps => Some(adapt(session, plan, &settings, &ground, oid).await?),
        _ => None,
    };
    Ok(Setup { settings, ground, record, there, refills })
}

/// Describes a table, and gives it columns for the fields.
async fn adapt(session: &Session, plan: &Plan, settings: &Settings, ground: &Ground, oid: u32) -> Told<(Layer, Slots)> {
    let mut layer = layer::describe(session, settings, ground, oid).await?;
    let mut change = Change::default();
    let slots = Slots::new(&mut layer.columns, &plan.fields, types::DIALECT.has_json, &mut change);
    layer.change(session, settings, &change).await?;
    Ok((layer, slots))
}

async fn find_crs(session: &Session, settings: &Settings, ground: &Ground) -> Told<Option<i64>> {
    let sql = format!(
        "SELECT srid::bigint FROM {}.geometry_columns WHERE f_table_schema = $1 AND f_table_name = $2
         ORDER BY f_geometry_column <> 'geom' LIMIT 1",
        ground.postgis
    );
    let rows = session.query(&sql, &[(&settings.schema, Type::TEXT), (&settings.layer, Type::TEXT)]).await?;
    rows.first().map(|row| read(row, 0)).transpose()
}

/// Brings table and record to where the load begins, or goes on.
async fn begin(
    session: &Session,
    plan: &Plan,
    settings: &Settings,
    into: &Settings,
    ground: &Ground,
    (mut record, there, refills): (Record, Option<(Layer, Slots)>, bool),
) -> Told<(Record, Layer, Slots)> {
    // A table that was to take the layer's place cannot fill it, now that something hangs on the layer.
    let useless = refills && record.made;
    let resumed = record.standing.features > 0 && record.standing.result.is_none() && !useless;
    if plan.mode != Mode::Replace
        && let Some((layer, slots)) = there
    {
        if !resumed {
            if plan.again && plan.mode == Mode::Append {
                let sql = format!("DELETE FROM {} WHERE geonce_event = $1", layer.table);
                session.execute(&sql, &[(&record.event, Type::TEXT)]).await?;
            }
            record = Record::new(plan);
        }
        return Ok((record, layer, slots));
    }
    let mut oid = layer::find_table(session, into).await?;
    if oid.is_none() || !resumed {
        record = Record::new(plan);
        if plan.mode == Mode::Replace {
            replace::forget(session, into).await?;
        }
        if refills {
            replace::create_like(session, settings, into, oid.is_some()).await?;
        } else {
            if oid.is_some() {
                session.batch(&format!("DROP TABLE {}", into.table())).await?;
            }
            layer::create(session, into, &ground.postgis).await.map_err(made_meanwhile)?;
            record.made = true;
        }
        oid = layer::find_table(session, into).await?;
    }
    let oid = oid.ok_or_else(|| Error::new(Kind::Internal, format!("{} was made and is not there", into.place())))?;
    let (layer, slots) = adapt(session, plan, into, ground, oid).await?;
    Ok((record, layer, slots))
}

/// Somebody else made the table since we looked: then it is one that was there before.
fn made_meanwhile(trouble: Trouble) -> Trouble {
    match trouble.state().map(tokio_postgres::error::SqlState::code) {
        Some("42P07" | "23505") => Trouble::silent("another program made the table at the same moment"),
        _ => trouble,
    }
}

fn given_up() -> Error {
    Error::new(Kind::Internal, "the load was given up after an error")
}

impl PostGis {
    /// What an answer means. After an error the load is given up: what was not committed is undone.
    fn judge<T>(&mut self, load: Load, answer: Told<T>) -> Result<T> {
        match answer {
            Ok(answer) => {
                self.standing = load.record.standing.clone();
                self.load = Some(load);
                Ok(answer)
            }
            Err(trouble) => Err(trouble.explain(&format!("loading into {}", self.place))),
        }
    }
}

impl Target for PostGis {
    fn crs(&self) -> u32 {
        self.crs
    }

    fn place(&self) -> String {
        self.place.clone()
    }

    fn standing(&self) -> &Standing {
        &self.standing
    }

    fn known(&self) -> Known {
        self.known.clone()
    }

    fn count_unchanged(&mut self, features: u64) {
        if let Some(part) = self.load.as_mut().and_then(|load| load.part.as_mut()) {
            part.tally.unchanged += features;
        }
    }

    fn write(&mut self, pieces: Vec<Piece>) -> Answer<'_, Vec<Refused>> {
        Box::pin(async move {
            let mut load = self.load.take().ok_or_else(given_up)?;
            let written = load.write(&pieces).await;
            self.judge(load, written)
        })
    }

    fn commit(&mut self, features: u64, notes: String) -> Answer<'_, ()> {
        Box::pin(async move {
            let mut load = self.load.take().ok_or_else(given_up)?;
            let committed = load.commit(features, notes).await;
            self.judge(load, committed)
        })
    }

    fn finish(&mut self, features: u64, result: Box<dyn FnOnce(Tally) -> String + Send>) -> Answer<'_, Tally> {
        Box::pin(async move {
            let mut load = self.load.take().ok_or_else(given_up)?;
            let finished = load.finish(features, result).await;
            self.judge(load, finished)
        })
    }
}
