"""R1: kill -9, thirty times, under load with redeliveries. Requests in flight at a kill are retried after the restart.

To see this test fail, answer before the commit. In the embedded store's writer a group runs in one transaction, is
committed, and then answered (`Run::committed`): answer at the end of each request's run instead, and wait 50 ms before
the commit, so that a kill meets the gap. Build, run this; it must report lost events. Undo it: the product has no
switch for it.
"""

import asyncio
import pathlib
import random
import sys
import tempfile
import time

from client import Traffic
from gateway import Gateway
from law import Result, options, trial

KILLS = 30
SENDERS = 24
LIFE_SECONDS = (0.3, 1.1)
RESTART_SECONDS_MAX = 1.0
RATE_MIN = 300


async def run(gateway: Gateway, traffic: Traffic, result: Result, seed: int) -> None:
    rng = random.Random(seed)
    gateway.start()
    senders = [asyncio.create_task(traffic.send()) for _ in range(SENDERS)]
    up, restarts = 0.0, []
    for _ in range(KILLS):
        first = time.monotonic()
        await asyncio.sleep(rng.uniform(*LIFE_SECONDS))
        up += time.monotonic() - first
        await asyncio.to_thread(gateway.kill)
        # Answers that were on their way still count: let the senders read them.
        await asyncio.sleep(0.02)
        before = traffic.last_acknowledged
        gateway.start(wait=False)
        while traffic.last_acknowledged == before and time.monotonic() < gateway.started + 20:
            await asyncio.sleep(0.002)
        restarts.append(traffic.last_acknowledged - gateway.started)
    await traffic.finish(senders)
    rate = len(traffic.latencies) / (up or 1)
    result.more = {"kills": KILLS, "rate": f"{rate:.0f}/s", "restart_max": f"{max(restarts) * 1000:.0f}ms"}
    result.require(rate >= RATE_MIN, f"only {rate:.0f} events/s: too few to mean anything")
    result.require(0 < max(restarts) < RESTART_SECONDS_MAX, f"first ack {max(restarts):.2f} s after a restart")


def main() -> int:
    given = options(__doc__)
    result = Result("R1-kill", given.seed)
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(given.binary, pathlib.Path(folder, "data"), pathlib.Path(folder, "log"))
        traffic = Traffic(gateway.port, given.seed)
        trial(result, gateway, traffic, run(gateway, traffic, result, given.seed))
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
