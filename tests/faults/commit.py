"""R8: commits whose answers are lost, one in five, in the store and in the sink (PostgreSQL with PostGIS); connections ended by
the server; the server crashing. At least 200 commits of which nobody knows whether they were done."""

import asyncio
import pathlib
import random
import sys
import tempfile
import time

from client import Traffic
from law import Result, options, trial
from services import Database, PostGis, Services, config, gateways

SENDERS = 16
AMBIGUOUS_MIN = 200
# Long enough for a slow machine; it ends as soon as enough was lost.
SECONDS_MAX = 150
CRASHES = 3
ENDED = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"


async def run(pair: list, database: Database, traffic: Traffic, result: Result, seed: int) -> None:
    rng = random.Random(seed)
    for gateway in pair:
        gateway.start()
    senders = [asyncio.create_task(traffic.send(pause=0.001)) for _ in range(SENDERS)]
    await asyncio.to_thread(database.fault, "swallow", "commit", 5)
    began, ended, crashes, swallowed = time.monotonic(), 0, 0, 0
    while time.monotonic() < began + SECONDS_MAX and (swallowed < AMBIGUOUS_MIN or crashes < CRASHES):
        await asyncio.sleep(rng.uniform(0.3, 1.0))
        if crashes < CRASHES and rng.random() < 0.25:
            await asyncio.to_thread(database.services.ask, "crash", 0)
            await asyncio.to_thread(database.services.ask, "start", 0)
            crashes += 1
        else:
            ended += int((await asyncio.to_thread(database.sql, ENDED))[0][0])
        swallowed = await asyncio.to_thread(database.swallowed)
    await asyncio.to_thread(database.fault, "none")
    await traffic.finish(senders)
    result.more = {"ambiguous": swallowed, "ended": ended, "crashes": crashes}
    result.require(swallowed >= AMBIGUOUS_MIN, f"only {swallowed} commits lost their answer")
    result.require(crashes == CRASHES and ended > 0, "the server neither crashed nor ended connections")


def main() -> int:
    given = options(__doc__)
    result = Result("R8-commit", given.seed)
    with tempfile.TemporaryDirectory() as name, Services(given.binary) as services:
        folder, database = pathlib.Path(name), Database(services)
        pair = gateways(given.binary, folder, 2, config(folder, database.url, database.url))
        traffic = Traffic([gateway.port for gateway in pair], given.seed)
        trial(result, pair, traffic, run(pair, database, traffic, result, given.seed), layer=PostGis(database))
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
