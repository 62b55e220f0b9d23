//! Bounds on requests and payloads, and what goes to the log.

use super::Reading;
use super::file::{self, FormatWord, LevelWord};
use super::human::Size;
use crate::failure::Failure;
use geonce_key::Limits;
use std::time::Duration;

/// Every bound of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitsSettings {
    /// On one payload; every policy has them.
    pub(crate) payload: Limits,
    /// On connections and requests.
    pub(crate) receiver: ReceiverLimits,
}

/// Bounds on connections and requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceiverLimits {
    /// Open connections.
    pub(crate) connections_max: usize,
    /// Open connections from one address.
    pub(crate) connections_per_address_max: usize,
    /// Wait for the first byte on a new connection.
    pub(crate) first_byte_within: Duration,
    /// Time for the head of a request.
    pub(crate) header_within: Duration,
    /// Time between two requests of one connection.
    pub(crate) idle_within: Duration,
    /// Time for one body or one answer, whatever its rate.
    pub(crate) transfer_within: Duration,
    /// The least rate of a body or an answer, in bytes a second.
    pub(crate) transfer_rate_min: u64,
    /// What a body or an answer may take before its rate counts.
    pub(crate) transfer_grace: Duration,
    /// Time for requests in progress when the gateway stops.
    pub(crate) shutdown_within: Duration,
    /// Bytes of the head of a request.
    pub(crate) header_bytes_max: usize,
    /// Bytes of all bodies in memory at once.
    pub(crate) buffered_bytes_max: usize,
    /// Features of one request.
    pub(crate) features_max: usize,
}

impl Default for ReceiverLimits {
    fn default() -> Self {
        ReceiverLimits {
            connections_max: 1_000,
            connections_per_address_max: 250,
            first_byte_within: Duration::from_secs(10),
            header_within: Duration::from_secs(10),
            idle_within: Duration::from_mins(1),
            transfer_within: Duration::from_mins(5),
            transfer_rate_min: 1 << 10,
            transfer_grace: Duration::from_secs(10),
            shutdown_within: Duration::from_secs(10),
            header_bytes_max: 32 << 10,
            buffered_bytes_max: 64 << 20,
            features_max: 10_000,
        }
    }
}

/// The least important line that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// The word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogSettings {
    pub(crate) level: LogLevel,
    pub(crate) format: LogFormat,
}

pub(super) fn log(log: &file::Log) -> LogSettings {
    LogSettings {
        level: match log.level {
            Some(LevelWord::Error) => LogLevel::Error,
            Some(LevelWord::Warn) => LogLevel::Warn,
            Some(LevelWord::Info) | None => LogLevel::Info,
            Some(LevelWord::Debug) => LogLevel::Debug,
            Some(LevelWord::Trace) => LogLevel::Trace,
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
        let base = ReceiverLimits::default();
        let receiver = ReceiverLimits {
            connections_max: count("connections_max", limits.connections_max, base.connections_max)?,
            connections_per_address_max: count(
                "connections_per_address_max",
                limits.connections_per_address_max,
                base.connections_per_address_max,
            )?,
            first_byte_within: within("first_byte_within", limits.first_byte_within, base.first_byte_within)?,
            header_within: within("header_within", limits.header_within, base.header_within)?,
            idle_within: within("idle_within", limits.idle_within, base.idle_within)?,
            transfer_within: within("transfer_within", limits.transfer_within, base.transfer_within)?,
            transfer_rate_min: limits.transfer_rate_min.map_or(base.transfer_rate_min, |size| size.0),
            transfer_grace: within("transfer_grace", limits.transfer_grace, base.transfer_grace)?,
            shutdown_within: within("shutdown_within", limits.shutdown_within, base.shutdown_within)?,
            header_bytes_max: size("header_bytes_max", limits.header_bytes_max, base.header_bytes_max)?,
            buffered_bytes_max: size("buffered_bytes_max", limits.buffered_bytes_max, base.buffered_bytes_max)?,
            features_max: count("features_max", limits.features_max, base.features_max)?,
        };
        Ok(LimitsSettings { payload, receiver })
    }
}
