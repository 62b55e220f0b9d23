//! The PostGIS sink: events or entities as rows of a table, each written once, by any number of gateways.
//!
//! A batch is one transaction: rows and proofs; where the store is in the same database, settlements too (`beside`). The
//! table: `layer`, `types`; rows: `row`; the proofs: `guard`; a batch: `plan`, `write`, `merge`, `refusal`.

mod beside;
pub(crate) mod guard;
pub(crate) mod layer;
mod merge;
mod plan;
pub(crate) mod refusal;
mod row;
#[cfg(test)]
mod tests;
pub(crate) mod types;
mod write;

use super::Written;
use super::{Columns, Delivered, Isolation, Mode, Options, Outgoing, Proof, Settling, Sink, columns};
use crate::error::{Error, Kind, Result};
use crate::event::{Cause, Outcome};
use crate::postgres::{Address, Pool, Session, Tries, Trouble, check_name, quoted};
use crate::store::Answer;
use beside::Beside;
use geonce_key::{Feature, Fingerprint};
use guard::Guard;
use layer::Layer;
use refusal::Refusal;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use write::Prepared;

/// The most connections of one sink.
const CONNECTIONS_MAX: usize = 8;
/// The longest page of proofs.
const PROOFS_MAX: usize = 10_000;
/// The schema where the address names none.
const SCHEMA: &str = "public";

/// What the sink was asked to do.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) schema: String,
    pub(crate) layer: String,
    pub(crate) mode: Mode,
    pub(crate) columns: Arc<Columns>,
    pub(crate) crs: u32,
    pub(crate) approximate_crs: bool,
    pub(crate) isolation: Isolation,
    pub(crate) timeout: Duration,
}

impl Settings {
    /// The table, as a statement names it.
    pub(crate) fn table(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.layer))
    }

    /// The table, as a person writes it.
    pub(crate) fn place(&self) -> String {
        format!("{}.{}", self.schema, self.layer)
    }
}

/// Where a transaction failed.
enum Failure {
    Writing(Trouble),
    /// Or when both were to be committed.
    Settling(Trouble),
}

/// A sink. Connects when it is first needed.
pub(crate) struct PostGis {
    settings: Settings,
    pool: Pool,
    guard: Guard,
    /// The layer as it was last seen; `None` before, and after it was found to have changed.
    layer: Mutex<Option<Arc<Layer>>>,
    /// Held while the layer is looked at or changed: one does it for all.
    looking: tokio::sync::Mutex<()>,
    beside: Beside,
    /// Whether there is a table for events that go into the rows of others.
    merges: AtomicBool,
}

/// Opens the sink. Connects to nothing.
pub(super) fn open(name: &str, url: &str, options: &Options) -> Result<Arc<dyn Sink>> {
    let address = Address::parse(url)?;
    let settings = settings(name, &address, options)?;
    Ok(Arc::new(PostGis {
        pool: Pool::new(&address, CONNECTIONS_MAX)?,
        guard: Guard::new(&settings.schema),
        settings,
        layer: Mutex::new(None),
        looking: tokio::sync::Mutex::new(()),
        beside: Beside::default(),
        merges: AtomicBool::new(false),
    }))
}

fn settings(name: &str, address: &Address, options: &Options) -> Result<Settings> {
    let layer = options.layer.clone().unwrap_or_else(|| name.to_owned());
    if check_name(&layer).is_err() || layer.trim().is_empty() || layer.starts_with("geonce_") {
        return Err(
            Error::new(Kind::Invalid, format!("{layer:?} cannot be the name of a layer")).hint("layer = \"zones\"")
        );
    }
    if options.secret.is_some() || !options.allow.is_empty() {
        return Err(Error::new(Kind::Invalid, "a database has no use for secret or allow"));
    }
    let Some(crs) = geonce_key::crs::lookup(options.crs) else {
        return Err(Error::new(Kind::Invalid, format!("EPSG:{} is not a coordinate system of the table", options.crs)));
    };
    columns::check(&options.columns, &types::DIALECT)?;
    Ok(Settings {
        schema: address.schema.clone().unwrap_or_else(|| SCHEMA.to_owned()),
        layer,
        mode: options.mode,
        columns: Arc::new(options.columns.clone()),
        crs: crs.code(),
        approximate_crs: options.approximate_crs,
        isolation: options.isolation,
        timeout: options.timeout,
    })
}

impl PostGis {
    fn known(&self) -> Option<Arc<Layer>> {
        self.layer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn know(&self, layer: Option<Arc<Layer>>) {
        *self.layer.lock().unwrap_or_else(PoisonError::into_inner) = layer;
    }

    /// The layer, with columns for what features hold.
    async fn layer<'f>(
        &self,
        features: impl Iterator<Item = &'f Feature> + Clone + Send + Sync,
    ) -> std::result::Result<Arc<Layer>, Trouble> {
        if let Some(layer) = self.known().filter(|layer| layer.suffices(features.clone())) {
            return Ok(layer);
        }
        let _one = self.looking.lock().await;
        if let Some(layer) = self.known().filter(|layer| layer.suffices(features.clone())) {
            return Ok(layer);
        }
        let mut tries = Tries::new();
        let layer = loop {
            let looked = async {
                let session = self.pool.begin().await?;
                let layer = layer::load(&session, &self.settings, features.clone()).await;
                session.end(layer).await
            };
            match looked.await {
                Ok(layer) => break Arc::new(layer),
                Err(trouble) => tries.again(trouble).await?,
            }
        };
        self.know(Some(Arc::clone(&layer)));
        Ok(layer)
    }

    /// Brings geometries into the layer's coordinate system; why not, of those that cannot be.
    fn place_all(&self, batch: &mut [Outgoing]) -> Vec<Option<Cause>> {
        let Settings { mode, crs, approximate_crs, .. } = self.settings;
        batch.iter_mut().map(|outgoing| outgoing.place(mode, crs, approximate_crs).err()).collect()
    }

    async fn write_batch(
        &self,
        mut batch: Vec<Outgoing>,
        mut settling: Option<Settling<'_>>,
    ) -> std::result::Result<Vec<Delivered>, Trouble> {
        if let Some(joint) = settling.as_ref().map(|settling| settling.joint.clone())
            && !self.may_settle(&joint).await
        {
            settling = None;
        }
        let causes = self.place_all(&mut batch);
        let (mut tries, mut again) = (Tries::new(), false);
        loop {
            let good = batch.iter().zip(&causes).filter(|(_, cause)| cause.is_none());
            let layer = self.layer(good.map(|(outgoing, _)| &outgoing.feature)).await?;
            if let Err(trouble) = self.make_merged(&batch).await {
                tries.again(trouble).await?;
                continue;
            }
            let prepared = Prepared::new(&self.settings, layer, &batch, &causes);
            let trouble =
                match Box::pin(self.write_once(&prepared, again, settling.as_ref(), tries.may_have_happened())).await {
                    Ok(delivered) => return Ok(delivered),
                    Err(Failure::Writing(trouble)) if !again && matches!(refusal::judge(&trouble), Refusal::Layer) => {
                        again = true;
                        self.know(None);
                        self.merges.store(false, Ordering::Relaxed);
                        continue;
                    }
                    Err(Failure::Settling(trouble)) if !trouble.is_worth_another_try() => {
                        if let Some(settling) = settling.take() {
                            self.cannot_settle(&settling.joint, trouble);
                        }
                        continue;
                    }
                    Err(Failure::Writing(trouble) | Failure::Settling(trouble)) => trouble,
                };
            tries.again(trouble).await?;
        }
    }

    /// Makes the table for events that go into the rows of others, when the first does.
    async fn make_merged(&self, batch: &[Outgoing]) -> std::result::Result<(), Trouble> {
        let merges = self.settings.mode == Mode::Append && batch.iter().any(|outgoing| outgoing.merge.is_some());
        if merges && !self.merges.load(Ordering::Relaxed) {
            let session = self.pool.begin().await?;
            let made = self.guard.create_merged(&session).await;
            session.end(made).await?;
            self.merges.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// One transaction.
    async fn write_once(
        &self,
        prepared: &Prepared<'_>,
        again: bool,
        settling: Option<&Settling<'_>>,
        repeated: bool,
    ) -> std::result::Result<Vec<Delivered>, Failure> {
        let session = self.pool.begin_as(self.settings.isolation.begin()).await.map_err(Failure::Writing)?;
        let written = write::batch(&session, &self.settings, prepared, again).await;
        let (Some(settling), Ok(_)) = (settling, &written) else {
            return session.end(written).await.map(Delivered::only).map_err(Failure::Writing);
        };
        let settled = match written {
            Ok(written) => self.settle_within(&session, written, settling, repeated).await,
            Err(trouble) => Err(trouble),
        };
        let (delivered, settlements) = session.end(settled).await.map_err(Failure::Settling)?;
        settling.joint.committed(&settlements);
        Ok(delivered)
    }

    async fn write_in_time(&self, batch: Vec<Outgoing>, settling: Option<Settling<'_>>) -> Result<Vec<Delivered>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        match tokio::time::timeout(self.settings.timeout, self.write_batch(batch, settling)).await {
            Ok(written) => written.map_err(|trouble| self.explain(trouble, "writing to")),
            Err(_) => Err(Error::new(Kind::Unavailable, format!("writing to {}", self.settings.place()))
                .because(format!("not done after {:?}", self.settings.timeout))),
        }
    }

    /// A connection, and the layer's number: there are no proofs before the layer is there.
    async fn connected(&self) -> std::result::Result<(Session, i32), Trouble> {
        let layer = self.layer(std::iter::empty()).await?;
        Ok((self.pool.session().await?, layer.id))
    }

    async fn outcomes(&self, keys: &[Fingerprint]) -> std::result::Result<HashMap<[u8; 16], Outcome>, Trouble> {
        let (session, layer) = self.connected().await?;
        self.guard.outcomes(&session, layer, keys.iter().map(Fingerprint::key)).await
    }

    async fn page(&self, after: Option<[u8; 16]>, limit: i64) -> std::result::Result<Vec<Proof>, Trouble> {
        let (session, layer) = self.connected().await?;
        self.guard.page(&session, layer, after, limit).await
    }

    async fn again(&self, tries: &mut Tries, trouble: Trouble, doing: &str) -> Result<()> {
        tries.again(trouble).await.map_err(|trouble| self.explain(trouble, doing))
    }

    fn explain(&self, trouble: Trouble, doing: &str) -> Error {
        trouble.explain(&format!("{doing} {}", self.settings.place()))
    }
}

impl Sink for PostGis {
    fn check(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async move {
            self.know(None);
            let layer = self.layer(std::iter::empty()).await;
            layer.map(|layer| layer.notices.clone()).map_err(|trouble| self.explain(trouble, "looking at"))
        })
    }

    fn write(&self, batch: Vec<Outgoing>) -> Answer<'_, Vec<Written>> {
        Box::pin(async move {
            let delivered = self.write_in_time(batch, None).await?;
            Ok(delivered.into_iter().map(|delivered| delivered.written).collect())
        })
    }

    fn write_and_settle<'a>(&'a self, batch: Vec<Outgoing>, settling: Settling<'a>) -> Answer<'a, Vec<Delivered>> {
        Box::pin(self.write_in_time(batch, Some(settling)))
    }

    fn proofs(&self, keys: Vec<Fingerprint>) -> Answer<'_, Option<Vec<bool>>> {
        Box::pin(async move {
            let mut tries = Tries::new();
            loop {
                match self.outcomes(&keys).await {
                    Ok(found) => return Ok(Some(keys.iter().map(|key| found.contains_key(&key.key())).collect())),
                    Err(trouble) => self.again(&mut tries, trouble, "looking for keys in").await?,
                }
            }
        })
    }

    fn applied(&self, after: Option<[u8; 16]>, limit: usize) -> Answer<'_, Option<Vec<Proof>>> {
        Box::pin(async move {
            let limit = i64::try_from(limit.min(PROOFS_MAX)).unwrap_or(i64::MAX);
            let mut tries = Tries::new();
            loop {
                match self.page(after, limit).await {
                    Ok(page) => return Ok(Some(page)),
                    Err(trouble) => self.again(&mut tries, trouble, "listing the keys in").await?,
                }
            }
        })
    }

    fn place(&self) -> Option<String> {
        Some(self.settings.place())
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            self.pool.close();
            Ok(())
        })
    }
}
