"""Two gateways on one Redis that keeps what it acknowledges, writing to PostGIS: Redis is killed and restarted, gateways are
killed, Redis is frozen. A server that evicts is refused."""

import asyncio
import pathlib
import random
import sys
import tempfile

from client import Traffic
from law import Result, options, trial
from services import Database, PostGis, Services, config, gateways

SENDERS = 16
ROUNDS = 4


async def run(pair: list, services: Services, traffic: Traffic, result: Result, seed: int) -> None:
    rng = random.Random(seed)
    for gateway in pair:
        gateway.start()
    senders = [asyncio.create_task(traffic.send(pause=0.002)) for _ in range(SENDERS)]
    for _ in range(ROUNDS):
        await asyncio.sleep(rng.uniform(0.5, 1.0))
        await asyncio.to_thread(services.ask, "kill", 0)
        await asyncio.to_thread(services.ask, "restart", 0)
        await asyncio.sleep(rng.uniform(0.5, 1.0))
        victim = rng.choice(pair)
        await asyncio.to_thread(victim.kill)
        await asyncio.to_thread(victim.start)
        await asyncio.sleep(rng.uniform(0.5, 1.0))
        await asyncio.to_thread(services.ask, "freeze", 0)
        await asyncio.sleep(1.5)
        await asyncio.to_thread(services.ask, "thaw", 0)
    await traffic.finish(senders)
    result.more = {"server_kills": ROUNDS, "gateway_kills": ROUNDS, "freezes": ROUNDS}


def refuses_eviction(result: Result, gateway, services: Services) -> None:
    services.ask("say", 0, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    answer = gateway.command("serve", "--listen", "127.0.0.1:0")
    said = "maxmemory-policy is allkeys-lru" in answer.stderr and "accept_loss" in answer.stderr
    result.require(answer.returncode == 2 and said, f"an evicting server was not refused: {answer.stderr}")


def main() -> int:
    given = options(__doc__)
    result = Result("redis-store", given.seed)
    with tempfile.TemporaryDirectory() as name, Services(given.binary) as services:
        folder, database = pathlib.Path(name), Database(services)
        port = services.ask("redis")
        pair = gateways(given.binary, folder, 2, config(folder, f"redis://127.0.0.1:{port}", database.direct))
        traffic = Traffic([gateway.port for gateway in pair], given.seed)
        trial(result, pair, traffic, run(pair, services, traffic, result, given.seed), layer=PostGis(database))
        refuses_eviction(result, pair[0], services)
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
