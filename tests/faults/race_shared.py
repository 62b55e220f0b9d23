"""R9 with two gateways on one PostgreSQL: 500 events, each delivered twenty times at the same moment, ten times to each gateway.
Exactly 500 rows; of each event one delivery is accepted and nineteen are duplicates that name it."""

import asyncio
import pathlib
import sys
import tempfile
import time

import race
from client import Traffic
from law import Result, hold, options
from services import Database, PostGis, Services, config, gateways


def main() -> int:
    given = options(__doc__)
    result, start = Result("R9-race-shared", given.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as name, Services(given.binary) as services:
        folder, database = pathlib.Path(name), Database(services)
        pair = gateways(given.binary, folder, 2, config(folder, database.direct, database.direct))
        traffic = Traffic([gateway.port for gateway in pair], given.seed)
        try:
            for gateway in pair:
                gateway.start()
            asyncio.run(race.run(traffic))
            hold(result, pair, traffic, layer=PostGis(database))
        finally:
            for gateway in pair:
                gateway.kill()
    result.require(len(traffic.accepted) == race.EVENTS, f"{len(traffic.accepted)} events were accepted")
    result.more = {"events": race.EVENTS, "copies": race.COPIES, "gateways": 2}
    result.seconds = time.monotonic() - start
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
