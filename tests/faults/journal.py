"""The store is down and the gateway goes on: events go to its journal, the gateway is killed and started again while the store is
still down, the store comes back, everything reaches it. Answers are provisional, rows are not."""

import asyncio
import pathlib
import random
import sys
import tempfile

from client import Traffic
from law import Result, options, trial
from services import Database, PostGis, Services, config, gateways

SENDERS = 16
ROUNDS = 3
KILLS_PER_ROUND = 3


async def run(gateway, database: Database, traffic: Traffic, result: Result, seed: int) -> None:
    rng = random.Random(seed)
    gateway.start()
    senders = [asyncio.create_task(traffic.send(pause=0.002)) for _ in range(SENDERS)]
    spilled = 0
    for number in range(ROUNDS):
        await asyncio.sleep(1.0)
        if number == ROUNDS - 1:
            await asyncio.to_thread(database.services.ask, "crash", 0)
        else:
            await asyncio.to_thread(database.fault, "reset" if number else "hole")
        for _ in range(KILLS_PER_ROUND):
            before = len(traffic.acknowledged)
            await asyncio.sleep(rng.uniform(1.0, 1.6) + (2 if number == 0 else 0))
            spilled += len(traffic.acknowledged) - before
            await asyncio.to_thread(gateway.kill)
            await asyncio.to_thread(gateway.start)
        if number == ROUNDS - 1:
            await asyncio.to_thread(database.services.ask, "start", 0)
        else:
            await asyncio.to_thread(database.fault, "none")
    await traffic.finish(senders)
    result.more = {"kills": ROUNDS * KILLS_PER_ROUND, "acked_while_down": spilled}
    result.require(spilled > 500, f"only {spilled} events were acknowledged while the store was down")


def main() -> int:
    given = options(__doc__)
    result = Result("journal", given.seed)
    with tempfile.TemporaryDirectory() as name, Services(given.binary) as services:
        folder, database = pathlib.Path(name), Database(services)
        file = config(folder, database.url, database.url, source='on_store_down = "spill"')
        [gateway] = gateways(given.binary, folder, 1, file)
        traffic = Traffic(gateway.port, given.seed, provisional=True)
        trial(result, gateway, traffic, run(gateway, database, traffic, result, given.seed), layer=PostGis(database))
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
