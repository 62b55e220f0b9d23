"""R5: the disk fills up under load and is freed again. While it is full the gateway refuses with 503 and Retry-After and
stays alive; afterwards it goes on by itself, and nothing is lost or doubled."""

import asyncio
import pathlib
import sys
import tempfile
import time

from client import Traffic
from disk import Disk, leave_out
from gateway import Gateway
from law import Result, options, trial

SENDERS = 16
DISK_MEGABYTES = 96
FULL_SECONDS_MAX = 15
RECOVERY_SECONDS_MAX = 10


async def until(condition, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        await asyncio.sleep(0.02)
    return condition()


async def run(disk: Disk, gateway: Gateway, traffic: Traffic, result: Result) -> None:
    gateway.start()
    senders = [asyncio.create_task(traffic.send()) for _ in range(SENDERS)]
    result.require(await until(lambda: len(traffic.acknowledged) > 1_000, 10), "no traffic before the disk was full")
    filler = await asyncio.to_thread(disk.fill)
    # Room inside the files that exist may serve a while; then every sender must have been told.
    refusing = await until(lambda: traffic.postponed >= 5 * SENDERS, FULL_SECONDS_MAX)
    result.require(refusing, "no 503 although the disk is full")
    status, _ = await asyncio.to_thread(gateway.get, "/healthz")
    result.require(status == 200, f"/healthz answers {status} while the disk is full")
    await asyncio.sleep(2)
    result.require(gateway.alive(), "the gateway ended when the disk was full")
    filler.unlink()
    freed, known = time.monotonic(), len(traffic.acknowledged)
    going = await until(lambda: len(traffic.acknowledged) > known + 500, RECOVERY_SECONDS_MAX)
    result.require(going, "no acknowledgements after the disk was freed")
    result.more = {"postponed": traffic.postponed, "recovered": f"{time.monotonic() - freed:.1f}s"}
    await traffic.finish(senders)


def main() -> int:
    given = options(__doc__)
    if (code := leave_out("R5-full")) is not None:
        return code
    result = Result("R5-full", given.seed)
    with tempfile.TemporaryDirectory() as folder, Disk(folder, DISK_MEGABYTES) as disk:
        gateway = Gateway(given.binary, disk.mount_point / "data", pathlib.Path(folder, "log"))
        traffic = Traffic(gateway.port, given.seed)
        trial(result, gateway, traffic, run(disk, gateway, traffic, result))
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
