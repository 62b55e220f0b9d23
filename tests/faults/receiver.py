"""The bugs of receivers that answer first and think later, each as a named test against the gateway.

Jitter that is added to the delay and ends constant is a matter of the retry schedule, a pure function with tests of its own.
"""

import asyncio
import json
import pathlib
import sys
import tempfile
import time

from client import Answer, Connection, feature
from gateway import Gateway
from law import Result, median, options, percentile_99, query

CONFIG = """
[source.default]
allow_unsigned = true
sink = "features"
[source.east]
allow_unsigned = true
sink = "features"
[source.west]
allow_unsigned = true
sink = "features"
[source.place]
allow_unsigned = true
identify = "spatial"
sink = "features"
[sink.features]
url = "gpkg:features.gpkg"
layer = "features"
"""
RACERS = 20
LARGE_BYTES = 30_000_000
# A gateway that stalls others while it reads does so in every turn, a busy machine in some.
STALL_TURNS = 3
STALL_SECONDS_MAX = 0.5
SLOWEST_SECONDS_MAX = 5.0
SETTLED_SECONDS_MAX = 10


class Bench:
    """A running gateway, and what tests need to say about it."""

    def __init__(self, gateway: Gateway):
        self.gateway = gateway
        self.latencies: list[float] = []
        self.deliveries = self.acknowledged = 0

    async def post(self, body: bytes, **more) -> Answer:
        connection = await Connection.open(self.gateway.port)
        start = time.monotonic()
        answer = await connection.post(body, **more)
        connection.close()
        self.latencies.append(time.monotonic() - start)
        self.deliveries += 1
        self.acknowledged += answer.status < 300
        return answer

    def rows(self, number: int) -> int:
        return query(self.gateway.data / "features.gpkg", f"SELECT count(*) FROM features WHERE n = {number}")[0][0]

    def settled(self, numbers: list[int]) -> list[int]:
        """Rows of each of these, once all that was accepted is at the sink."""
        end = time.monotonic() + SETTLED_SECONDS_MAX
        # The books themselves: what /readyz says may be a second old.
        while self.gateway.ledger()[1].get("waiting"):
            check(time.monotonic() < end, "events still wait")
            time.sleep(0.02)
        return [self.rows(number) for number in numbers]

    def dead(self) -> list[dict]:
        """Dead events as `events list` prints them."""
        answer = self.gateway.command("events", "list", "--state", "dead", "--json")
        check(answer.returncode in (0, 1), f"events list: {answer.stderr}")
        text = answer.stdout.strip()
        if text.startswith("["):
            return json.loads(text)
        return [json.loads(line) for line in text.splitlines()]


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


async def an_acknowledged_event_survives_kill_9(bench: Bench) -> None:
    numbers = list(range(100, 110))
    for number in numbers:
        check((await bench.post(feature(number))).status == 202, "not accepted")
    bench.gateway.kill()
    bench.gateway.start()
    check(bench.settled(numbers) == [1] * len(numbers), "acknowledged events are not at the sink once")


async def twenty_deliveries_at_once_are_applied_once(bench: Bench) -> None:
    answers = await asyncio.gather(*(bench.post(feature(200, copy)) for copy in range(RACERS)))
    told = [answer.json() for answer in answers]
    accepted = [one["event"] for one in told if one["outcome"] == "accepted"]
    check(len(accepted) == 1, f"{len(accepted)} were accepted")
    check(all(one.get("of", accepted[0]) == accepted[0] for one in told), "duplicates name different events")
    check(bench.settled([200]) == [1], "not one row")


async def an_id_reused_with_another_payload_is_kept_and_shown(bench: Bench) -> None:
    first = await bench.post(feature(300), webhook_id="reused-1")
    second = await bench.post(feature(301), webhook_id="reused-1")
    check(first.status == 202 and second.status < 300, f"{first.status}, {second.status}")
    check(second.json()["outcome"] != "duplicate", "called a duplicate, and dropped")
    check(bench.settled([300]) == [1], "the first is not at the sink")
    check(bench.rows(301) == 1 or any("conflict" in json.dumps(one) for one in bench.dead()), "the second has vanished")


async def two_senders_with_the_same_id_do_not_collide(bench: Bench) -> None:
    east = await bench.post(feature(310), path="/in/east", webhook_id="42")
    west = await bench.post(feature(311), path="/in/west", webhook_id="42")
    check((east.status, west.status) == (202, 202), f"{east.status} {west.status}: {west.body!r}")
    check(bench.settled([310, 311]) == [1, 1], "one of the two is not at the sink")


async def an_event_with_and_without_an_id_is_one_event_where_its_place_identifies(bench: Bench) -> None:
    await bench.post(feature(320), path="/in/place")
    await bench.post(feature(320), path="/in/place", webhook_id="late-id")
    check(bench.settled([320]) == [1], "not one row")


async def json_that_is_no_object_is_refused(bench: Bench) -> None:
    for body in (b"[1,2]", b"42", b"null", b'"x"', b"true"):
        answer = await bench.post(body)
        check(answer.status == 400 and answer.json().get("code"), f"{body!r}: {answer.status} {answer.body!r}")


async def impossible_geometries_are_refused_with_code_and_place(bench: Bench) -> None:
    for coordinates in (
        '"Point","coordinates":[NaN,Infinity]',
        '"Point","coordinates":[999,999]',
        '"Polygon","coordinates":[[[0,0],[1,1]]]',
    ):
        answer = await bench.post(
            f'{{"type":"Feature","properties":{{}},"geometry":{{"type":{coordinates}}}}}'.encode()
        )
        told = answer.json()
        check(
            answer.status == 400 and bool(told.get("code")) and "pointer" in told,
            f"{coordinates}: {answer.status} {told}",
        )


async def slowest_beside(bench: Bench, huge: bytes, first: int) -> float:
    """The longest that one of forty events took while a large body was sent."""
    sending = asyncio.create_task(bench.post(huge))
    slowest = 0.0
    for number in range(first, first + 40):
        start = time.monotonic()
        check((await bench.post(feature(number))).status == 202, "a good event was not accepted meanwhile")
        slowest = max(slowest, time.monotonic() - start)
    answer = await sending
    check(answer.status == 413, f"the large body was answered with {answer.status}")
    return slowest


async def a_body_of_30_megabytes_stalls_nobody(bench: Bench) -> None:
    huge = (
        b'{"type":"Feature","geometry":{"type":"LineString","coordinates":['
        + b"[1.5,2.5]," * (LARGE_BYTES // 10)
        + b"[1,2]]}}"
    )
    waits = [await slowest_beside(bench, huge, 4_000 + 40 * turn) for turn in range(STALL_TURNS)]
    told = f"other requests waited {', '.join(f'{wait:.2f} s' for wait in waits)}"
    check(median(waits) < STALL_SECONDS_MAX and max(waits) < SLOWEST_SECONDS_MAX, told)


async def the_payload_is_stored_byte_for_byte(bench: Bench) -> None:
    body = feature(500).replace(b'"level":', b'"level" :  ')
    event = (await bench.post(body)).json()["event"]
    bench.gateway.kill()
    stored = b"".join(file.read_bytes() for file in bench.gateway.data.glob("geonce.db*"))
    bench.gateway.start()
    check(body in stored, f"the payload of {event} is not in the store after kill -9")


async def dead_letters_are_data_and_can_be_exported(bench: Bench) -> None:
    bad = b'{"type":"Feature","geometry":{"type":"Point","coordinates":[999,999]},"properties":{"n":601}}'
    answer = await bench.post(feature(600) + b"\n" + bad + b"\n", media="application/x-ndjson")
    check(answer.status == 202, f"{answer.status} {answer.body!r}")
    check(bool(bench.dead()), "the refused feature beside an accepted one is not dead, but gone")
    exported = bench.gateway.command("dead", "export")
    check(
        b"[999,999]" in exported.stdout.encode(),
        f"not exported as it was delivered: {exported.stdout!r} {exported.stderr}",
    )
    check(bench.settled([600]) == [1], "the good feature is not at the sink")


TESTS = [
    an_acknowledged_event_survives_kill_9,
    twenty_deliveries_at_once_are_applied_once,
    an_id_reused_with_another_payload_is_kept_and_shown,
    two_senders_with_the_same_id_do_not_collide,
    an_event_with_and_without_an_id_is_one_event_where_its_place_identifies,
    json_that_is_no_object_is_refused,
    impossible_geometries_are_refused_with_code_and_place,
    a_body_of_30_megabytes_stalls_nobody,
    the_payload_is_stored_byte_for_byte,
    dead_letters_are_data_and_can_be_exported,
]


def main() -> int:
    given = options(__doc__)
    result, start = Result("receiver", given.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "geonce.toml")
        config.write_text(CONFIG)
        gateway = Gateway(given.binary, pathlib.Path(folder, "data"), pathlib.Path(folder, "log"), config)
        bench = Bench(gateway)
        try:
            gateway.start()
            for test in TESTS:
                try:
                    asyncio.run(test(bench))
                except (AssertionError, OSError, KeyError, ValueError, TimeoutError, EOFError) as error:
                    result.violations.append(f"{test.__name__}: {type(error).__name__} {error}")
                if not gateway.alive():
                    result.violations.append(f"{test.__name__}: the gateway ended")
                    gateway.start()
            gateway.stop()
            sums, books = gateway.ledger()
            result.require(sums, f"the books do not sum: {books}")
        finally:
            gateway.kill()
    result.sent, result.acked, result.dead = bench.deliveries, bench.acknowledged, books.get("dead", 0)
    result.p99 = percentile_99(bench.latencies)
    result.more = {"tests": len(TESTS)}
    result.seconds = time.monotonic() - start
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
