//! The engine of geonce: every accepted event is recorded once and reaches its sink or ends visibly dead.
//!
//! Events come in through [`intake`], are kept by a [`store`], and [`delivery`] brings them to their [`sink`]s.
//! The engine knows nothing of HTTP servers, command lines or configuration files.

pub mod audit;
pub mod background;
pub mod cache;
pub mod changes;
pub mod clock;
pub mod delivery;
pub mod error;
pub mod event;
pub mod intake;
pub mod ledger;
pub mod load;
mod postgres;
mod redis;
pub mod repair;
pub mod replay;
pub mod retry;
pub mod signature;
pub mod sink;
pub mod store;

pub use error::{Error, Result};
