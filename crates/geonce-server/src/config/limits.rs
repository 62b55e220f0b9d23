//! Bounds on requests and payloads, and what goes to the log.

use super::Reading;
use super::file::{self, FormatWord, LevelWord};
use super::human::Size;
use crate::failure::Failure;
use crate::serve;
use geonce::intake::FEATURES_MAX;
use geonce_key::Limits;
use tracing::level_filters::LevelFilter;

/// Every bound of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitsSettings {
    /// On one payload; every policy has them.
    pub(crate) payload: Limits,
    /// On connections and requests.
    pub(crate) receiver: serve::Limits,
    /// On the features of one request.
    pub(crate) features_max: usize,
}

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people on a terminal, for machines otherwise.
    #[default]
    Auto,
    Pretty,
    Json,
}

impl LogFormat {
    /// The word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            LogFormat::Auto => "auto",
            LogFormat::Pretty => "pretty",
            LogFormat::Json => "json",
        }
    }
}

/// What goes to the log, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogSettings {
    /// The least important line that is written.
    pub(crate) level: LevelFilter,
    pub(crate) format: LogFormat,
}

pub(super) fn log(log: &file::Log) -> LogSettings {
    LogSettings {
        level: match log.level {
            Some(LevelWord::Error) => LevelFilter::ERROR,
            Some(LevelWord::Warn) => LevelFilter::WARN,
            Some(LevelWord::Info) | None => LevelFilter::INFO,
            Some(LevelWord::Debug) => LevelFilter::DEBUG,
            Some(LevelWord::Trace) => LevelFilter::TRACE,
        },
        format: match log.format {
            Some(FormatWord::Auto) | None => LogFormat::Auto,
            Some(FormatWord::Pretty) => LogFormat::Pretty,
            Some(FormatWord::Json) => LogFormat::Json,
        },
    }
}

impl Reading<'_> {
    /// The settings of `[limits]`. None of them may be zero: a limit of nothing refuses everything.
    pub(super) fn limits(&self, limits: &file::Limits) -> Result<LimitsSettings, Failure> {
        let count = |name: &str, value: Option<usize>, default: usize| match value {
            Some(0) => Err(self.refuse(&format!("limits.{name}"), "a limit is at least 1")),
            value => Ok(value.unwrap_or(default)),
        };
        let size = |name: &str, value: Option<Size>, default: usize| {
            let value = value.map(|size| usize::try_from(size.0).unwrap_or(usize::MAX));
            count(name, value, default)
        };
        let within = |name: &str, value, default| self.longer_than_zero(value, default, &format!("limits.{name}"));
        let base = Limits::default();
        let payload = Limits {
            bytes_max: size("bytes_max", limits.bytes_max, base.bytes_max)?,
            depth_max: count("depth_max", limits.depth_max, base.depth_max)?,
            values_max: count("values_max", limits.values_max, base.values_max)?,
            members_max: count("members_max", limits.members_max, base.members_max)?,
            string_bytes_max: size("string_bytes_max", limits.string_bytes_max, base.string_bytes_max)?,
            number_bytes_max: size("number_bytes_max", limits.number_bytes_max, base.number_bytes_max)?,
            positions_max: count("positions_max", limits.positions_max, base.positions_max)?,
            rings_max: count("rings_max", limits.rings_max, base.rings_max)?,
            parts_max: count("parts_max", limits.parts_max, base.parts_max)?,
            work_max: match limits.work_max {
                Some(0) => return Err(self.refuse("limits.work_max", "a limit is at least 1")),
                work => work.unwrap_or(base.work_max),
            },
        };
        let base = serve::Limits::default();
        let receiver = serve::Limits {
            connections_max: count("connections_max", limits.connections_max, base.connections_max)?,
            connections_per_address_max: count(
                "connections_per_address_max",
                limits.connections_per_address_max,
                base.connections_per_address_max,
            )?,
            first_byte: within("first_byte_within", limits.first_byte_within, base.first_byte)?,
            header: within("header_within", limits.header_within, base.header)?,
            idle: within("idle_within", limits.idle_within, base.idle)?,
            transfer: within("transfer_within", limits.transfer_within, base.transfer)?,
            transfer_bytes_per_second_min: limits
                .transfer_rate_min
                .map_or(base.transfer_bytes_per_second_min, |size| size.0),
            transfer_grace: within("transfer_grace", limits.transfer_grace, base.transfer_grace)?,
            shutdown: within("shutdown_within", limits.shutdown_within, base.shutdown)?,
            header_bytes_max: size("header_bytes_max", limits.header_bytes_max, base.header_bytes_max)?,
            buffered_bytes_max: size("buffered_bytes_max", limits.buffered_bytes_max, base.buffered_bytes_max)?,
        };
        let features_max = count("features_max", limits.features_max, FEATURES_MAX)?;
        Ok(LimitsSettings { payload, receiver, features_max })
    }
}
