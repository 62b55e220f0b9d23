"""R6: the Redis of a cache before PostgreSQL is stopped, frozen for five seconds, flushed at any moment, restarted empty, given
hardly any memory. Nothing is lost or doubled, and while it is frozen acknowledgements do not wait for it."""

import asyncio
import pathlib
import random
import sys
import tempfile
import time

from client import Traffic
from law import Result, options, percentile_99, trial
from services import Database, PostGis, Services, config, gateways

SENDERS = 8
FROZEN_SECONDS = 5.0
FLUSHES = 10
FROZEN_P99_SECONDS_MAX = 0.25
# On a machine that takes longer than that by itself, what counts is that Redis adds little.
SLOWER_MAX = 3


async def run(pair: list, services: Services, traffic: Traffic, result: Result, seed: int) -> None:
    rng = random.Random(seed)

    def redis(*words) -> None:
        services.ask(*words)

    for gateway in pair:
        gateway.start()
    senders = [asyncio.create_task(traffic.send(pause=0.004)) for _ in range(SENDERS)]
    # The first second is warming up.
    await asyncio.sleep(1)
    warm = len(traffic.latencies)
    await asyncio.sleep(2)
    calm = percentile_99(traffic.latencies[warm:])
    await asyncio.to_thread(redis, "freeze", 0)
    before = len(traffic.latencies)
    await asyncio.sleep(FROZEN_SECONDS)
    frozen = percentile_99(traffic.latencies[before:])
    await asyncio.to_thread(redis, "thaw", 0)
    for _ in range(FLUSHES):
        await asyncio.sleep(rng.uniform(0.1, 0.4))
        await asyncio.to_thread(redis, "say", 0, "FLUSHALL")
    await asyncio.to_thread(redis, "kill", 0)
    await asyncio.sleep(2)
    await asyncio.to_thread(redis, "restart", 0)
    await asyncio.sleep(2)
    await asyncio.to_thread(redis, "say", 0, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    await asyncio.to_thread(redis, "say", 0, "CONFIG", "SET", "maxmemory", "1500kb")
    await asyncio.sleep(3)
    await traffic.finish(senders)
    hits = sum(gateway.metric('geonce_lookups_total{tier="cache",result="known"}') for gateway in pair)
    recent = sum(gateway.metric('geonce_lookups_total{tier="process",result="known"}') for gateway in pair)
    result.more = {
        "calm_p99": f"{calm * 1000:.0f}ms",
        "frozen_p99": f"{frozen * 1000:.0f}ms",
        "cache_hits": hits,
        "process_hits": recent,
    }
    frozen_max = max(FROZEN_P99_SECONDS_MAX, SLOWER_MAX * calm)
    result.require(frozen < frozen_max, f"p99 was {frozen * 1000:.0f} ms while Redis was frozen, before {calm * 1000:.0f} ms")
    result.require(hits > 0 and recent > 0, "the cache was of no use: the test has shown nothing")


def main() -> int:
    given = options(__doc__)
    result = Result("R6-cache", given.seed)
    with tempfile.TemporaryDirectory() as name, Services(given.binary) as services:
        folder, database = pathlib.Path(name), Database(services)
        port = services.ask("redis")
        cache = f'[cache]\nurl = "redis://127.0.0.1:{port}"\n'
        pair = gateways(given.binary, folder, 2, config(folder, database.direct, database.direct, more=cache))
        traffic = Traffic([gateway.port for gateway in pair], given.seed, redelivered=0.5)
        start = time.monotonic()
        trial(result, pair, traffic, run(pair, services, traffic, result, given.seed), layer=PostGis(database))
        result.seconds = time.monotonic() - start
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
