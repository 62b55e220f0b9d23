//! A store that a command looks into, beside a gateway that may be running, and a runtime to wait for its answers.

use crate::arguments::PlaceArguments;
use crate::config::{self, Place};
use crate::failure::Failure;
use geonce::store::{self, Access, Filter, ListRequest, Record, Store};
use std::future::Future;
use std::path::Path;
use std::sync::Arc;

/// Events asked for at once.
const PAGE_EVENTS: usize = 500;

/// An open store.
pub(crate) struct Tool {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) place: Place,
    runtime: tokio::runtime::Runtime,
}

impl Tool {
    /// Opens the store that flags and configuration name.
    pub(crate) fn open(place: &PlaceArguments) -> Result<Tool, Failure> {
        Tool::at(config::place(&place.overrides())?)
    }

    /// Opens the store at `place`. A store that is not there is not made: that is the gateway's to do.
    pub(crate) fn at(place: Place) -> Result<Tool, Failure> {
        Tool::at_as(place, Access::Tool)
    }

    /// Opens the store that flags and configuration name, to change more than a tool may.
    pub(crate) fn open_as(place: &PlaceArguments, access: impl FnOnce(&Place) -> Access) -> Result<Tool, Failure> {
        let place = config::place(&place.overrides())?;
        let access = access(&place);
        Tool::at_as(place, access)
    }

    fn at_as(place: Place, access: Access) -> Result<Tool, Failure> {
        if let Some(file) = missing_file(&place.store.url, &place.data) {
            return Err(Failure::new("store_missing", format!("there is no store at {}", file.display()))
                .hint("--data names the gateway's folder, --store or --config its store; geonce serve makes one"));
        }
        let runtime = runtime()?;
        let opened = {
            let _inside = runtime.enter();
            store::open(&place.store.url, &place.store.options, access, &place.data)?
        };
        Ok(Tool { store: opened, place, runtime })
    }

    /// Waits for an answer.
    pub(crate) fn wait<T>(&self, answer: impl Future<Output = geonce::Result<T>>) -> Result<T, Failure> {
        Ok(self.runtime.block_on(answer)?)
    }

    /// Runs something to its end.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Opens a sink of this place's folder.
    pub(crate) fn open_sink(
        &self,
        name: &str,
        sink: &config::SinkSettings,
    ) -> Result<Arc<dyn geonce::sink::Sink>, Failure> {
        let _inside = self.runtime.enter();
        Ok(geonce::sink::open(name, &sink.url, &sink.options, &self.place.data)?)
    }

    /// Shows every event that is meant to `each`, the latest first, until it says false.
    pub(crate) fn each(
        &self,
        filter: &Filter,
        payloads: bool,
        mut each: impl FnMut(Record) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let mut before = None;
        loop {
            let request = ListRequest { filter: filter.clone(), before, limit: PAGE_EVENTS, payloads };
            let page = self.wait(self.store.list(request))?;
            before = page.last().map(|record| record.id);
            let full = page.len() == PAGE_EVENTS;
            for record in page {
                if !each(record)? {
                    return Ok(());
                }
            }
            if !full {
                return Ok(());
            }
        }
    }

    /// Leaves the store tidy.
    pub(crate) fn close(self) -> Result<(), Failure> {
        self.wait(self.store.close())
    }
}

/// A runtime for one command.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::io("starting", &error))
}

/// The file of a store or a sink that is not there yet.
pub(crate) fn missing_file(url: &str, data: &Path) -> Option<std::path::PathBuf> {
    match url.split_once(':')? {
        ("sqlite" | "gpkg" | "ndjson", file) if file != ":memory:" => {
            let file = data.join(file);
            (!file.exists()).then_some(file)
        }
        _ => None,
    }
}
