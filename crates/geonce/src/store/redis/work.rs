//! Work: handing it out, ending it, prolonging it.

use super::Shared;
use super::call::{EXTEND, Each, LEASE, SETTLE};
use super::row::{
    damaged, id_text, millis, read_crs, read_digest, read_fingerprints, read_form, read_id, read_number, read_origin,
    write_cause,
};
use crate::clock::Timestamp;
use crate::redis::Attempt;
use crate::store::holder::kept;
use crate::store::{End, Lease, LeaseRequest, Leased, RUNS, ResultText, Settled, Settlement, company_max};
use bytes::Bytes;
use redis::{Cmd, Value};
use std::sync::Arc;
use std::time::Duration;

/// The most events of one lease, whatever is asked for: the server does nothing else meanwhile.
const LEASE_EVENTS_MAX: usize = 512;
/// The most bytes of payload of one lease.
const LEASE_BYTES_MAX: usize = 16 << 20;
/// The most leases that one script ends or prolongs.
const SLICE_LEASES: usize = 256;
/// The longest that a lease is prolonged by: a clock that jumps must not hold work for ever.
const EXTEND_MAX: Duration = Duration::from_hours(1);

/// Hands out work.
pub(super) async fn lease(shared: &Shared, request: &LeaseRequest, now: Timestamp) -> Attempt<Vec<Leased>> {
    let events_max = request.events_max.min(LEASE_EVENTS_MAX);
    if events_max == 0 {
        return Ok(Vec::new());
    }
    let duration = i64::try_from(request.duration.as_millis()).unwrap_or(i64::MAX).min(1 << 50);
    let fill = |command: &mut Cmd| {
        command.arg(&*request.sink).arg(events_max).arg(request.bytes_max.min(LEASE_BYTES_MAX)).arg(duration);
        command.arg(company_max(1)).arg(u8::from(shared.options.keep_payload));
        command.arg(request.event.map(id_text).unwrap_or_default()).arg(kept(&request.holder));
    };
    let answer: Vec<Value> = redis::from_redis_value(shared.caller.run(&LEASE, now, &fill).await?)?;
    let mut answer = answer.into_iter();
    let buried: String = redis::from_redis_value(answer.next().ok_or_else(|| damaged("no answer to a lease"))?)?;
    for line in buried.lines() {
        tracing::error!("damaged work was taken out of the queue: evt_{line}");
    }
    // One that cannot be read stays leased until that lapses; an audit tells what is wrong with it.
    let read = answer.filter_map(|value| match read_leased(value, &request.sink) {
        Ok(leased) => Some(leased),
        Err(trouble) => {
            tracing::error!(error = %trouble.explain("leasing events"), "work that cannot be read");
            None
        }
    });
    Ok(read.collect())
}

fn read_leased(value: Value, sink: &Arc<str>) -> Attempt<Leased> {
    let parts: Vec<Vec<u8>> = redis::from_redis_value(value)?;
    let [id, token, source, keys, content, received, attempts, lapses, form, crs, payload, origin]: [Vec<u8>; 12] =
        parts.try_into().map_err(|_| damaged("a lease of another form"))?;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| damaged("a lease that is no text"));
    let key = read_fingerprints(&keys)?.first().copied().ok_or_else(|| damaged("an event without a key"))?;
    Ok(Leased {
        lease: Lease {
            event: read_id(&text(id)?)?,
            sink: Arc::clone(sink),
            token: read_number(&text(token)?, "a token")?,
        },
        source: text(source)?.into(),
        key,
        content: read_digest(&content)?,
        origin: read_origin(&origin)?,
        received: Timestamp::from_millis(read_number(&text(received)?, "a time")?),
        attempts: read_number(&text(attempts)?, "attempts")?,
        lapses: read_number(&text(lapses)?, "lapses")?,
        form: read_form(&text(form)?)?,
        crs: read_crs(&text(crs)?)?,
        payload: Bytes::from(payload),
    })
}

/// Ends leases.
pub(super) async fn settle(shared: &Arc<Shared>, settlements: &[Settlement], now: Timestamp) -> Attempt<Vec<Settled>> {
    let mut answers = Vec::with_capacity(settlements.len());
    for slice in settlements.chunks(SLICE_LEASES) {
        let fill = |command: &mut Cmd| {
            command.arg(u8::from(shared.options.keep_payload));
            for Settlement { lease, end } in slice {
                command.arg(id_text(lease.event)).arg(&*lease.sink).arg(lease.token);
                write_end(command, end);
            }
        };
        let (changed, settled) = shared.caller.run_each(&SETTLE, now, &fill).await?;
        // Whoever waits for a run hears of its end.
        if changed == "1" || slice.iter().any(|settlement| *settlement.lease.sink == *RUNS) {
            shared.changed();
        }
        read_settled(settled, slice.len(), &mut answers)?;
    }
    Ok(answers)
}

/// Four arguments, whatever the end.
fn write_end(command: &mut Cmd, end: &End) {
    match end {
        End::Done(outcome, result) => {
            let result = result.as_ref().map(ResultText::stored).unwrap_or_default();
            command.arg("done").arg(outcome.as_str()).arg("").arg(result)
        }
        End::Retry { at, cause, counts } => {
            command.arg("retry").arg(millis(*at)).arg(u8::from(*counts)).arg(write_cause(cause))
        }
        End::Dead(cause) => command.arg("dead").arg("").arg("").arg(write_cause(cause)),
    };
}

fn read_settled(settled: Vec<Each>, wanted: usize, answers: &mut Vec<Settled>) -> Attempt<()> {
    if settled.len() != wanted {
        return Err(damaged("answers to settlements are missing"));
    }
    for answer in settled {
        answers.push(match answer {
            Ok(answer) if answer == "1" => Settled::Ok,
            Ok(_) => Settled::LeaseLost,
            // One damaged record must not keep others from being settled. When its lease has lapsed, it is taken out of
            // the queue.
            Err(trouble) if trouble.is_damage() => {
                tracing::error!(error = %trouble.explain("settling events"), "a lease was not ended");
                Settled::LeaseLost
            }
            Err(trouble) => return Err(trouble),
        });
    }
    Ok(())
}

/// Prolongs leases.
pub(super) async fn extend(shared: &Shared, leases: &[Lease], until: Timestamp) -> Attempt<Vec<Settled>> {
    let mut answers = Vec::with_capacity(leases.len());
    // `until` is a time of this machine: how far away it is counts.
    let now = shared.caller.now(until.minus(EXTEND_MAX));
    let until = until.min(now.plus(EXTEND_MAX));
    for slice in leases.chunks(SLICE_LEASES) {
        let fill = |command: &mut Cmd| {
            command.arg(millis(until));
            for lease in slice {
                command.arg(id_text(lease.event)).arg(&*lease.sink).arg(lease.token);
            }
        };
        let (_, extended) = shared.caller.run_each(&EXTEND, now, &fill).await?;
        read_settled(extended, slice.len(), &mut answers)?;
    }
    Ok(answers)
}
