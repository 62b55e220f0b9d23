"""R9: 500 events, each delivered twenty times at the same moment on twenty connections, written differently each time.
Exactly 500 rows; of each event one delivery is accepted and nineteen are duplicates that name it."""

import asyncio
import pathlib
import sys
import tempfile
import time

from client import Connection, Traffic, feature
from gateway import Gateway
from law import Result, hold, options

EVENTS = 500
COPIES = 20
GROUPS = 10


async def group(traffic: Traffic, numbers: range) -> None:
    connections = [await Connection.open(traffic.ports[copy % len(traffic.ports)]) for copy in range(COPIES)]
    for number in numbers:
        start = time.monotonic()
        for copy, connection in enumerate(connections):
            connection.begin(feature(number, copy))
        for connection in connections:
            answer = await connection.finish()
            traffic.deliveries += 1
            traffic.latencies.append(time.monotonic() - start)
            if answer.status in (200, 202):
                traffic.record(number, answer)
            else:
                traffic.wrong.append(f"event {number}: {answer.status} {answer.body!r}")
    for connection in connections:
        connection.close()


async def run(traffic: Traffic) -> None:
    each = EVENTS // GROUPS
    traffic.numbers = EVENTS
    await asyncio.gather(*(group(traffic, range(first, first + each)) for first in range(0, EVENTS, each)))


def main() -> int:
    given = options(__doc__)
    result, start = Result("R9-race", given.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(given.binary, pathlib.Path(folder, "data"), pathlib.Path(folder, "log"))
        traffic = Traffic(gateway.port, given.seed)
        try:
            gateway.start()
            asyncio.run(run(traffic))
            hold(result, gateway, traffic)
        finally:
            gateway.kill()
    result.require(len(traffic.accepted) == EVENTS, f"{len(traffic.accepted)} events were accepted")
    result.more = {"events": EVENTS, "copies": COPIES}
    result.seconds = time.monotonic() - start
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
