"""R14: six hundred clients that are slow, huge, silent or deceitful, of ten kinds, beside good traffic.
All are closed within the limits, the good traffic hardly notices, memory stays below 256 MB.

The clients run in a process of their own, so that the good traffic is measured and not the measuring.
"""

import asyncio
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import zlib

from client import Connection, Traffic, feature
from gateway import Gateway
from law import Result, hold, options, percentile_99

EACH = 60
CLOSED_SECONDS_MAX = 25
MEMORY_MEGABYTES_MAX = 256
# Longer, so that whoever could open a connection only late is still played to the end.
PLAYED_SECONDS_MAX = CLOSED_SECONDS_MAX + 35
# Attackers, senders and gateway share the machine, so how much slower good traffic gets is printed; what is judged is that it is
# served at all: within this, or within so many times what it took before them where the machine is slow.
P99_SECONDS_MAX = 0.5
SLOWER_MAX = 10
GOOD_SENDERS = 8
GOOD_PAUSE_SECONDS = 0.02
BOMB_MEGABYTES = 256
CONFIG = """
[source.default]
allow_unsigned = true
sink = "features"
[sink.features]
url = "gpkg:features.gpkg"
layer = "features"
[limits]
first_byte_within = "3s"
header_within = "4s"
transfer_grace = "3s"
transfer_within = "10s"
idle_within = "5s"
"""
POST = b"POST /in/default HTTP/1.1\r\nhost: faults\r\ncontent-type: application/geo+json\r\n"


async def silent(connection: Connection) -> None:
    """Says nothing."""


async def header_by_byte(connection: Connection) -> None:
    for byte in POST + b"x-filler: " + b"y" * 1_000:
        connection.writer.write(bytes([byte]))
        await connection.writer.drain()
        await asyncio.sleep(0.3)


async def endless_header(connection: Connection) -> None:
    connection.writer.write(POST)
    for number in range(100_000):
        connection.writer.write(b"x-%d: %s\r\n" % (number, b"y" * 1_000))
        await connection.writer.drain()
        await asyncio.sleep(0.02)


async def body_by_byte(connection: Connection) -> None:
    connection.writer.write(POST + b"content-length: 1000\r\n\r\n")
    for _ in range(999):
        connection.writer.write(b" ")
        await connection.writer.drain()
        await asyncio.sleep(0.4)


async def body_that_stops(connection: Connection) -> None:
    body = feature(10**9)
    connection.writer.write(POST + b"content-length: %d\r\n\r\n" % len(body) + body[: len(body) // 2])
    await connection.writer.drain()


async def huge_length(connection: Connection) -> None:
    connection.writer.write(POST + b"content-length: 10000000000\r\n\r\n" + b"[" * 65_536)
    await connection.writer.drain()


async def endless_chunks(connection: Connection) -> None:
    connection.writer.write(POST + b"transfer-encoding: chunked\r\n\r\n")
    for _ in range(10_000):
        connection.writer.write(b"8000\r\n" + b" " * 0x8000 + b"\r\n")
        await connection.writer.drain()
        await asyncio.sleep(0.02)


async def never_reads(connection: Connection) -> None:
    connection.writer.transport.pause_reading()
    for _ in range(100_000):
        connection.writer.write(b"GET /metrics HTTP/1.1\r\nhost: faults\r\n\r\n" * 50)
        await connection.writer.drain()
        await asyncio.sleep(0.05)


async def idle(connection: Connection) -> None:
    connection.writer.write(b"GET /healthz HTTP/1.1\r\nhost: faults\r\n\r\n")
    await connection.finish()


async def gzip_bomb(connection: Connection) -> None:
    connection.writer.write(POST + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(BOMB) + BOMB)
    await connection.writer.drain()


async def two_lengths(connection: Connection) -> None:
    # If either reading of this request ends early, what follows is an event nobody has sent.
    inner = feature(10**9 + 1)
    smuggled = POST + b"content-length: %d\r\n\r\n" % len(inner) + inner
    connection.writer.write(POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled)
    await connection.writer.drain()


KINDS = [
    silent,
    header_by_byte,
    endless_header,
    body_by_byte,
    body_that_stops,
    huge_length,
    endless_chunks,
    never_reads,
    idle,
    gzip_bomb,
]
# Refused before anything is read; sent one by one beside the six hundred.
DECEITFUL = [two_lengths]
BOMB = b""


def bomb() -> bytes:
    """Zeros that inflate to far more than any limit."""
    press = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [press.compress(bytes(1 << 20)) for _ in range(BOMB_MEGABYTES)]
    return b"".join(parts) + press.flush()


async def attack(port: int, kind, number: int) -> tuple[str, float | None, list[int]]:
    """Plays one client until it is closed: its kind, the seconds it took, the statuses it was answered with."""
    start, statuses = time.monotonic(), []
    connection, limit = None, asyncio.timeout(PLAYED_SECONDS_MAX)
    try:
        async with limit:
            connection = await Connection.open(port, f"127.0.1.{1 + number % 200}")
            # Hundreds open theirs at once; the gateway's limits count from here.
            start = time.monotonic()
            if kind is never_reads:
                connection.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            playing = asyncio.create_task(kind(connection))
            if kind not in (never_reads, idle):
                while line := await connection.reader.readline():
                    if line.startswith(b"HTTP/1.1 "):
                        statuses.append(int(line.split()[1]))
                playing.cancel()
            else:
                await playing
                await connection.reader.read()
    except (OSError, ValueError, asyncio.IncompleteReadError):
        pass
    finally:
        if connection:
            connection.close()
    # Asked of the limit itself: that it was exceeded is an OSError as well.
    return kind.__name__, None if limit.expired() else time.monotonic() - start, statuses


async def attack_all(port: int) -> None:
    kinds = [kind for kind in KINDS for _ in range(EACH)] + DECEITFUL * EACH
    ends = await asyncio.gather(*(attack(port, kind, number) for number, kind in enumerate(kinds)))
    print(json.dumps(ends))


async def run(gateway: Gateway, traffic: Traffic, result: Result) -> None:
    gateway.start()
    senders = [asyncio.create_task(traffic.send(GOOD_PAUSE_SECONDS)) for _ in range(GOOD_SENDERS)]
    await asyncio.sleep(4)
    baseline, before = percentile_99(traffic.latencies), len(traffic.latencies)
    command = [sys.executable, __file__, "attack", str(gateway.port)]
    attackers = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    ends = json.loads((await attackers.communicate())[0])
    await traffic.finish(senders)
    p99 = percentile_99(traffic.latencies[before:])
    memory = gateway.memory_peak_megabytes()
    judge(result, ends)
    result.more |= {
        "clients": len(ends),
        "baseline_p99": f"{baseline * 1000:.1f}ms",
        "memory": f"{memory:.0f}MB",
        "postponed": traffic.postponed,
    }
    p99_max = max(P99_SECONDS_MAX, SLOWER_MAX * baseline)
    result.require(p99 < p99_max, f"good p99 {p99 * 1000:.0f} ms, before {baseline * 1000:.0f} ms")
    result.require(memory < MEMORY_MEGABYTES_MAX, f"memory {memory:.0f} MB")
    result.require(gateway.alive(), "the gateway ended")


def judge(result: Result, ends: list) -> None:
    slowest = max((seconds for _, seconds, _ in ends if seconds is not None), default=0.0)
    result.more = {"closed_max": f"{slowest:.1f}s"}
    for kind in {kind for kind, _, _ in ends}:
        mine = [(seconds, statuses) for name, seconds, statuses in ends if name == kind]
        open_still = sum(1 for seconds, _ in mine if seconds is None or seconds > CLOSED_SECONDS_MAX)
        result.require(open_still == 0, f"{kind}: {open_still} of {len(mine)} were not closed")
        answered = {status for _, statuses in mine for status in statuses}
        result.require(not any(status >= 500 and status != 503 for status in answered), f"{kind}: {answered}")
        if kind not in ("silent", "idle", "never_reads"):
            result.require(not any(200 <= status < 300 for status in answered), f"{kind}: {answered}")
        if kind in ("huge_length", "gzip_bomb"):
            result.require(413 in answered, f"{kind}: nobody was told 413, but {answered}")
        if kind == "endless_chunks":
            # Too long, too slow, or more than all bodies together may hold: whichever limit is met first.
            result.require(answered and answered <= {408, 413, 503}, f"{kind}: {answered}")
        if kind == "two_lengths":
            result.require(answered == {400}, f"{kind}: {answered}")


def main() -> int:
    global BOMB
    if sys.argv[1:2] == ["attack"]:
        # Their own computing is not the point: it gives way to the gateway and to the good traffic.
        os.nice(10)
        BOMB = bomb()
        asyncio.run(attack_all(int(sys.argv[2])))
        return 0
    given = options(__doc__)
    result, start = Result("R14-slow", given.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "geonce.toml")
        config.write_text(CONFIG)
        gateway = Gateway(given.binary, pathlib.Path(folder, "data"), pathlib.Path(folder, "log"), config)
        traffic = Traffic(gateway.port, given.seed)
        try:
            asyncio.run(run(gateway, traffic, result))
            hold(result, gateway, traffic)
        finally:
            gateway.kill()
    result.seconds = time.monotonic() - start
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
