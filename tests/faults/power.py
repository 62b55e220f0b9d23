"""R3: the power is cut five times while the gateway writes. Nothing acknowledged is lost, store and GeoPackage are whole.

Every other cut leaves the gateway running a moment longer on the dead disk: it must not acknowledge anything then.
Before that the rig is tried on writers whose answer is known: one that does not sync must lose rows, one that does must not.
"""

import asyncio
import contextlib
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

from client import Traffic
from disk import Disk, leave_out
from gateway import Gateway
from law import Result, options, trial, whole

CUTS = 5
SENDERS = 24
DISK_MEGABYTES = 512
# What a control must have written, however long it takes to start.
CONTROL_ROWS_MIN = 20
WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("PRAGMA synchronous = " + sys.argv[2])
connection.execute("CREATE TABLE row (number INTEGER)")
for number in range(10**9):
    connection.execute("INSERT INTO row VALUES (?)", (number,))
    print(number, flush=True)
"""


def control(disk: Disk, synchronous: str) -> int:
    """Rows that a plain writer had called written, and that a power cut took."""
    file = disk.mount_point / f"control-{synchronous}.db"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(file), synchronous], stdout=subprocess.PIPE) as writer:
        first = sum(bool(writer.stdout.readline()) for _ in range(CONTROL_ROWS_MIN))
        time.sleep(0.5)
        writer.send_signal(signal.SIGSTOP)
        disk.cut_power()
        writer.kill()
        written = first + writer.stdout.read().count(b"\n")
    disk.power_on()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        try:
            found = connection.execute("SELECT count(*) FROM row").fetchone()[0]
        except sqlite3.DatabaseError:
            found = 0
    return max(0, written - found)


def whole_after_cut(data: pathlib.Path, copy: pathlib.Path) -> list[str]:
    """Names of the files that are not whole, looked at in a copy, so that the gateway still has its own recovery to do."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(data, copy)
    broken = []
    for name in ("geonce.db", "features.gpkg"):
        try:
            # Opened for writing once: a journal left behind is rolled back, as the next program to open it would.
            with contextlib.closing(sqlite3.connect(copy / name)) as connection:
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if not whole(copy / name):
                broken.append(name)
        except sqlite3.DatabaseError as error:
            broken.append(f"{name} ({error})")
    return broken


async def run(disk: Disk, gateway: Gateway, traffic: Traffic, result: Result, copy: pathlib.Path, seed: int) -> None:
    rng = random.Random(seed)
    gateway.start()
    senders = [asyncio.create_task(traffic.send()) for _ in range(SENDERS)]
    restarts = []
    for cut in range(CUTS):
        await asyncio.sleep(rng.uniform(1.0, 3.0))
        if cut % 2 == 0:
            gateway.signal(signal.SIGSTOP)
        await asyncio.to_thread(disk.cut_power)
        await asyncio.sleep(0.0 if cut % 2 == 0 else 0.3)
        await asyncio.to_thread(gateway.kill)
        await asyncio.sleep(0.05)
        await asyncio.to_thread(disk.power_on)
        broken = await asyncio.to_thread(whole_after_cut, gateway.data, copy)
        result.require(not broken, f"not whole after cut {cut + 1}: {broken}")
        before = traffic.last_acknowledged
        gateway.start(wait=False)
        while traffic.last_acknowledged == before and time.monotonic() < gateway.started + 20:
            await asyncio.sleep(0.005)
        restarts.append(traffic.last_acknowledged - gateway.started)
    await traffic.finish(senders)
    result.more["cuts"] = CUTS
    result.more["restart_max"] = f"{max(restarts) * 1000:.0f}ms"
    result.require(min(restarts) > 0, "the gateway did not come back")


def main() -> int:
    given = options(__doc__)
    if (code := leave_out("R3-power")) is not None:
        return code
    result = Result("R3-power", given.seed)
    with tempfile.TemporaryDirectory() as folder, Disk(folder, DISK_MEGABYTES) as disk:
        unsynced, synced = control(disk, "OFF"), control(disk, "FULL")
        result.more = {"control_unsynced_lost": unsynced, "control_synced_lost": synced}
        result.require(unsynced > 0, "the rig is blind: a writer that does not sync lost nothing")
        result.require(synced == 0, "the rig is wrong: a writer that syncs lost rows")
        gateway = Gateway(given.binary, disk.mount_point / "data", pathlib.Path(folder, "log"))
        traffic = Traffic(gateway.port, given.seed)
        trial(result, gateway, traffic, run(disk, gateway, traffic, result, pathlib.Path(folder, "copy"), given.seed))
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
