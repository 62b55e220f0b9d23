"""R7: the network between a gateway and its store and sink (PostgreSQL with PostGIS) swallows everything, swallows answers,
resets connections, delays each answer by half a second. Nothing is lost, and five seconds after healing events are acknowledged."""

import asyncio
import pathlib
import sys
import tempfile
import time

from client import Traffic
from law import Result, options, trial
from services import Database, PostGis, Services, config, gateways

SENDERS = 16
FAULTS = [("hole",), ("half-open",), ("reset",), ("delay", 500)]
FAULT_SECONDS = 4.0
CALM_SECONDS = 1.5
RECOVERY_SECONDS_MAX = 5.0


async def run(gateway, database: Database, traffic: Traffic, result: Result) -> None:
    gateway.start()
    senders = [asyncio.create_task(traffic.send(pause=0.002)) for _ in range(SENDERS)]
    recoveries = {}
    for fault in FAULTS:
        await asyncio.sleep(CALM_SECONDS)
        await asyncio.to_thread(database.fault, *fault)
        await asyncio.sleep(FAULT_SECONDS)
        health = await asyncio.to_thread(gateway.get, "/healthz")
        result.require(health[0] == 200, f"{fault[0]}: the gateway does not answer for itself")
        await asyncio.to_thread(database.fault, "none")
        healed = time.monotonic()
        while traffic.last_acknowledged < healed and time.monotonic() < healed + 30:
            await asyncio.sleep(0.005)
        recoveries[fault[0]] = traffic.last_acknowledged - healed
    await traffic.finish(senders)
    result.more = {name: f"{seconds * 1000:.0f}ms" for name, seconds in recoveries.items()}
    for name, seconds in recoveries.items():
        result.require(0 <= seconds < RECOVERY_SECONDS_MAX, f"{name}: no event was acknowledged {seconds:.1f} s after healing")


def main() -> int:
    given = options(__doc__)
    result = Result("R7-network", given.seed)
    with tempfile.TemporaryDirectory() as name, Services(given.binary) as services:
        folder, database = pathlib.Path(name), Database(services)
        [gateway] = gateways(given.binary, folder, 1, config(folder, database.url, database.url))
        traffic = Traffic(gateway.port, given.seed)
        trial(result, gateway, traffic, run(gateway, database, traffic, result), layer=PostGis(database))
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
