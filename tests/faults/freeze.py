"""R10: a gateway is frozen past its leases, the other one delivers what it held, the first wakes up and goes on as if nothing
had happened; fifty times. Its settlements are refused by their tokens, its rows by the sink's proof."""

import asyncio
import pathlib
import random
import signal
import sys
import tempfile

from client import Traffic
from law import Result, options, trial
from services import Database, PostGis, Services, config, gateways

FREEZES = 50
SENDERS = 12
LEASE_SECONDS = 1.0
AWAKE_SECONDS = (0.05, 0.3)


async def run(pair: list, traffic: Traffic, result: Result, seed: int) -> None:
    rng = random.Random(seed)
    for gateway in pair:
        gateway.start()
    senders = [asyncio.create_task(traffic.send(pause=0.002)) for _ in range(SENDERS)]
    for number in range(FREEZES):
        await asyncio.sleep(rng.uniform(*AWAKE_SECONDS))
        frozen = pair[number % 2]
        frozen.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(LEASE_SECONDS * 1.2)
        finally:
            frozen.signal(signal.SIGCONT)
    await traffic.finish(senders)
    lost = sum(gateway.metric('geonce_attempts_total{sink="features",result="lease_lost"}') for gateway in pair)
    result.more = {"freezes": FREEZES, "settlements_refused": lost}
    result.require(lost > 0, "no frozen gateway held anything: the test has shown nothing")


def main() -> int:
    given = options(__doc__)
    result = Result("R10-freeze", given.seed)
    with tempfile.TemporaryDirectory() as name, Services(given.binary) as services:
        folder, database = pathlib.Path(name), Database(services)
        file = config(folder, database.direct, database.direct, lease=f"{LEASE_SECONDS:.0f}s")
        pair = gateways(given.binary, folder, 2, file)
        traffic = Traffic([gateway.port for gateway in pair], given.seed)
        trial(result, pair, traffic, run(pair, traffic, result, given.seed), layer=PostGis(database))
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
