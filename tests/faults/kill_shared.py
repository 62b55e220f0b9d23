"""R2: kill -9, twenty times, of one of two gateways that share PostgreSQL and write to PostGIS in the same database. What a
killed gateway held is delivered by whoever is next, once. Then a rolling restart: each is asked to stop and started again."""

import asyncio
import pathlib
import random
import sys
import tempfile
import time

from client import Traffic
from law import Result, options, trial
from services import Database, PostGis, Services, config, gateways

KILLS = 20
ROLLS = 2
SENDERS = 24
LIFE_SECONDS = (0.4, 1.2)
# Fewer, and a kill would hardly meet anything in flight. How fast it is beyond that is printed, not judged.
ACKNOWLEDGED_PER_KILL_MIN = 100


async def run(pair: list, traffic: Traffic, result: Result, seed: int) -> None:
    rng = random.Random(seed)
    for gateway in pair:
        gateway.start()
    senders = [asyncio.create_task(traffic.send()) for _ in range(SENDERS)]
    began = time.monotonic()
    for _ in range(KILLS):
        await asyncio.sleep(rng.uniform(*LIFE_SECONDS))
        victim = rng.choice(pair)
        await asyncio.to_thread(victim.kill)
        await asyncio.to_thread(victim.start)
    for gateway in pair * ROLLS:
        await asyncio.sleep(rng.uniform(*LIFE_SECONDS))
        code = await asyncio.to_thread(gateway.stop)
        result.require(code == 0, f"{gateway.instance} was asked to stop and ended with {code}")
        await asyncio.to_thread(gateway.start)
    acknowledged, seconds = len(traffic.latencies), time.monotonic() - began
    await traffic.finish(senders)
    result.more = {"kills": KILLS, "restarts": 2 * ROLLS, "rate": f"{acknowledged / seconds:.0f}/s"}
    result.require(acknowledged >= KILLS * ACKNOWLEDGED_PER_KILL_MIN, f"only {acknowledged} acknowledged: too few to mean anything")


def main() -> int:
    given = options(__doc__)
    result = Result("R2-kill-shared", given.seed)
    with tempfile.TemporaryDirectory() as name, Services(given.binary) as services:
        folder, database = pathlib.Path(name), Database(services)
        pair = gateways(given.binary, folder, 2, config(folder, database.direct, database.direct))
        traffic = Traffic([gateway.port for gateway in pair], given.seed)
        trial(result, pair, traffic, run(pair, traffic, result, given.seed), layer=PostGis(database))
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
