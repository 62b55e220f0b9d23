"""Order does not matter: 10,000 updates of 1,000 entities, shuffled, 30 % of them delivered twice, to two gateways on one PostgreSQL.
In a layer of PostGIS and in one GeoPackage, which both gateways write, each entity ends at its highest version; the books sum."""

import asyncio
import json
import pathlib
import random
import sys
import tempfile
import time

from client import BROKEN, RETRY_PAUSE_SECONDS, Connection
from law import Result, options, percentile_99, query, settle, whole
from services import LEASE, Database, Services, gateways

ENTITIES = 1_000
UPDATES = 10_000
TWICE = 0.3
SENDERS = 16
# A request brings one update or some more.
TOGETHER_MAX = 12
# One in so many entities ends deleted, and as many others are deleted in between.
DELETED_EVERY = 20
# Without any event being done; all of them may take longer.
STANDSTILL_SECONDS_MAX = 60

CONFIG = """
[store]
url = "{store}"
lease = "{lease}"

[source.default]
allow_unsigned = true
identity = ["/properties/name"]
version = "/properties/version"
delete = {{ at = "/properties/status", equals = "deleted" }}
sink = ["latest", "file"]

[sink.latest]
url = "{store}"
mode = "upsert"

[sink.file]
url = "gpkg:{file}"
layer = "latest"
mode = "upsert"
"""


def version(entity: int, step: int):
    """Numbers for some entities; times for others, whose text has another order than their instants."""
    if entity % 2:
        return step * 1_000 + entity
    hours = (-9, 0, 5)[step % 3]
    moment = 1_577_836_800 + step * 37 + hours * 3_600
    local = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    return f"{local}.{entity:03}{hours:+03}:00"


def update(entity: int, step: int, steps: int) -> bytes:
    last = step == steps - 1
    deleted = (last and entity % DELETED_EVERY == 0) or (step == steps // 2 and entity % DELETED_EVERY == 1)
    point = {"type": "Point", "coordinates": [round(entity / 10, 4), round(step / 7, 4)]}
    properties = {
        "name": f"e{entity}",
        "version": version(entity, step),
        "step": step,
        "status": "deleted" if deleted else "moving",
    }
    feature = {"type": "Feature", "geometry": None if deleted else point, "properties": properties}
    return json.dumps(feature).encode()


def requests(deliveries: list[bytes], rng: random.Random) -> list[bytes]:
    bodies, at = [], 0
    while at < len(deliveries):
        end = at + rng.randint(1, TOGETHER_MAX)
        bodies.append(b"\n".join(deliveries[at:end]))
        at = end
    return bodies


async def send(bodies: list[bytes], ports: list[int], rng: random.Random, result: Result, latencies: list[float]) -> None:
    connection = None
    while bodies:
        body = bodies.pop()
        while True:
            try:
                connection = connection or await Connection.open(rng.choice(ports))
                start = time.monotonic()
                answer = await connection.post(body, media="application/x-ndjson")
            except BROKEN:
                connection = None
                await asyncio.sleep(RETRY_PAUSE_SECONDS)
                continue
            latencies.append(time.monotonic() - start)
            if answer.status != 503:
                break
            await asyncio.sleep(0.1)
        result.require(answer.status in (200, 202), f"{answer.status} {answer.body[:200]!r}")
        if rng.random() < 0.05:
            # The next one may go to the other gateway.
            connection.close()
            connection = None
    if connection:
        connection.close()


async def send_all(bodies: list[bytes], ports: list[int], rng: random.Random, result: Result) -> list[float]:
    latencies: list[float] = []
    await asyncio.gather(*(send(bodies, ports, rng, result, latencies) for _ in range(SENDERS)))
    return latencies


def compare(result: Result, where: str, rows: list[tuple[str, int]], expected: dict[str, int]) -> None:
    """Each entity once, at its highest version; none that is deleted."""
    found = dict(rows)
    result.dup += len(rows) - len(found)
    for name, step in expected.items():
        if name not in found:
            result.lost += 1
            result.violations.append(f"{where}: {name} is not there")
        elif found[name] != step:
            result.violations.append(f"{where}: {name} is at step {found[name]}, not {step}")
    result.phantom += len(found.keys() - expected.keys())


def main() -> int:
    given = options(__doc__)
    result, start, rng = Result("versions", given.seed), time.monotonic(), random.Random(given.seed)
    steps = UPDATES // ENTITIES
    updates = [update(entity, step, steps) for entity in range(ENTITIES) for step in range(steps)]
    again = rng.sample(updates, round(UPDATES * TWICE))
    deliveries = updates + again
    rng.shuffle(deliveries)
    expected = {f"e{entity}": steps - 1 for entity in range(ENTITIES) if entity % DELETED_EVERY}
    with tempfile.TemporaryDirectory() as name, Services(given.binary) as services:
        folder, database = pathlib.Path(name), Database(services)
        file, config = folder / "latest.gpkg", folder / "geonce.toml"
        config.write_text(CONFIG.format(store=database.direct, lease=LEASE, file=file))
        pair = gateways(given.binary, folder, 2, config)
        try:
            for gateway in pair:
                gateway.start()
            sending = time.monotonic()
            bodies, ports = requests(deliveries, rng), [gateway.port for gateway in pair]
            latencies = asyncio.run(send_all(bodies, ports, rng, result))
            sent = time.monotonic()
            settle(pair[0], STANDSTILL_SECONDS_MAX)
            settled = time.monotonic()
            for gateway in pair:
                code = gateway.stop()
                result.require(code == 0, f"{gateway.instance} stopped with {code}")
            sums, books = pair[0].ledger()
        finally:
            for gateway in pair:
                gateway.kill()
        rows = database.sql("SELECT name, step FROM public.latest")
        compare(result, "PostGIS", [(name, int(step)) for name, step in rows], expected)
        compare(result, "GeoPackage", query(file, "SELECT name, step FROM latest"), expected)
        proofs = [
            int(database.sql("SELECT count(*) FROM geonce_applied")[0][0]),
            query(file, "SELECT count(*) FROM gpkg_geonce_applied")[0][0],
        ]
        result.require(proofs == [UPDATES, UPDATES], f"{proofs} proofs for {UPDATES} events")
        deleted = [
            int(database.sql("SELECT count(*) FROM geonce_entity WHERE deleted")[0][0]),
            query(file, "SELECT count(*) FROM gpkg_geonce_entity WHERE deleted")[0][0],
        ]
        result.require(deleted == [ENTITIES // DELETED_EVERY] * 2, f"{deleted} entities are remembered as deleted")
        indexed = query(file, "SELECT count(*) FROM rtree_latest_geom")[0][0]
        result.require(indexed == len(expected), f"{indexed} rows in the index of the GeoPackage")
        result.require(whole(file), "the GeoPackage is not whole")
    result.sent, result.acked, result.dead = UPDATES + len(again), UPDATES, books.get("dead", 0)
    result.require(sums, f"doctor: the books do not sum: {books}")
    told = [books.get(word, 0) for word in ("received", "duplicate", "dead", "waiting")]
    result.require(told == [len(updates) + len(again), len(again), 0, 0], f"the books: {books}")
    done = books.get("applied", 0) + books.get("stale", 0)
    result.require(done == UPDATES, f"{done} events were applied or stale")
    result.p99 = percentile_99(latencies)
    result.more = {
        "entities": ENTITIES,
        "applied": books.get("applied"),
        "stale": books.get("stale"),
        "sending": f"{sent - sending:.1f}s",
        "draining": f"{settled - sent:.1f}s",
    }
    result.seconds = time.monotonic() - start
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
