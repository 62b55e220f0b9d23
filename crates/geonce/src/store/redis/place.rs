//! Places of events among what may be near: what is sent to the script that gives them, and what it answers.

use super::Shared;
use super::call::PLACE;
use super::row::{damaged, id_text, millis, read_id};
use crate::clock::Timestamp;
use crate::redis::{Attempt, Trouble};
use crate::store::place::{Claim, NEIGHBOURS_BYTES_MAX, NEIGHBOURS_MAX, Neighbour, Placed, Spot, together};
use bytes::Bytes;
use redis::{Cmd, Value};

/// Spots that one script serves,
const SLICE_SPOTS: usize = 256;
/// bytes that they bring,
const SLICE_BYTES: usize = 4 << 20;
/// and bytes of neighbours after which it serves no further one.
const ANSWER_BYTES: usize = 4 << 20;

/// Gives events their places.
pub(super) async fn place(shared: &Shared, spots: &[Spot], now: Timestamp) -> Attempt<Vec<Placed>> {
    let mut answers = Vec::with_capacity(spots.len());
    // A script that answers nothing has removed places that were in its way.
    while let Some(rest) = spots.get(answers.len()..).filter(|rest| !rest.is_empty()) {
        let slice = &rest[..together(rest, SLICE_SPOTS, SLICE_BYTES)];
        let fill = |command: &mut Cmd| {
            command.arg(NEIGHBOURS_MAX).arg(NEIGHBOURS_BYTES_MAX).arg(ANSWER_BYTES);
            for spot in slice {
                write(command, spot);
            }
        };
        let answered: Vec<Value> = redis::from_redis_value(shared.caller.ask(&PLACE, now, &fill).await?)?;
        if answered.len() > slice.len() {
            return Err(damaged("more places than were asked for"));
        }
        for answer in answered {
            answers.push(read(answer)?);
        }
    }
    Ok(answers)
}

fn write(command: &mut Cmd, spot: &Spot) {
    let cells: Vec<u8> = spot.cells.iter().flat_map(|cell| cell.to_be_bytes()).collect();
    command.arg(id_text(spot.event)).arg(&spot.scope[..]).arg(&spot.home.to_be_bytes()[..]).arg(cells);
    command.arg(millis(spot.until)).arg(millis(spot.event.time())).arg(&spot.body[..]);
    match &spot.claim {
        Claim::Unless(known) => command.arg("u").arg(known.iter().map(|&event| id_text(event)).collect::<String>()),
        Claim::Anyway => command.arg("a").arg(""),
        Claim::Decided(text) => command.arg("d").arg(&**text),
    };
}

fn read(answer: Value) -> Attempt<Placed> {
    let mut parts = match answer {
        Value::Array(parts) => parts.into_iter(),
        other => {
            let text: String = redis::from_redis_value(other)?;
            return Err(text.strip_prefix('!').map_or_else(|| damaged("a place of another form"), Trouble::told));
        }
    };
    let unknown = || damaged("a place of another form");
    let kind: String = redis::from_redis_value(parts.next().ok_or_else(unknown)?)?;
    match kind.as_str() {
        "h" => Ok(Placed::Here),
        "d" => {
            let text: String = redis::from_redis_value(parts.next().ok_or_else(unknown)?)?;
            Ok(Placed::Decided(text.into()))
        }
        "n" => parts.map(read_neighbour).collect::<Attempt<_>>().map(Placed::Neighbours),
        _ => Err(unknown()),
    }
}

fn read_neighbour(value: Value) -> Attempt<Neighbour> {
    let (event, applied, body): (String, String, Vec<u8>) = redis::from_redis_value(value)?;
    Ok(Neighbour { event: read_id(&event)?, applied: applied == "1", body: Bytes::from(body) })
}
