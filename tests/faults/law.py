"""The law: lost = acknowledged - (at the sink + waiting + dead); duplicated = rows - distinct keys;
phantom = at the sink - sent. All zero, and the books sum."""

import argparse
import asyncio
import contextlib
import dataclasses
import pathlib
import sqlite3
import statistics
import sys
import time

DRAIN_PAUSE_SECONDS = 0.1


@dataclasses.dataclass
class Result:
    """What one fault did. Printed as one line; any violation makes it fail."""

    name: str
    seed: int
    sent: int = 0
    acked: int = 0
    lost: int = 0
    dup: int = 0
    phantom: int = 0
    dead: int = 0
    p99: float = 0.0
    seconds: float = 0.0
    more: dict = dataclasses.field(default_factory=dict)
    violations: list[str] = dataclasses.field(default_factory=list)

    def require(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.violations.append(otherwise)

    def finish(self) -> int:
        """Prints the line; the exit code."""
        for name in ("lost", "dup", "phantom"):
            self.require(getattr(self, name) == 0, f"{name} is not 0")
        more = "".join(f" {name}={value}" for name, value in self.more.items())
        verdict = "FAILED" if self.violations else "ok"
        print(
            f"{self.name} sent={self.sent} acked={self.acked} lost={self.lost} dup={self.dup} phantom={self.phantom} "
            f"dead={self.dead} p99={self.p99 * 1000:.1f}ms seconds={self.seconds:.1f} seed={self.seed}{more} {verdict}",
            flush=True,
        )
        for violation in self.violations[:20]:
            print(f"  {violation}", file=sys.stderr)
        return 1 if self.violations else 0


def percentile_99(latencies: list[float]) -> float:
    return sorted(latencies)[min(len(latencies) - 1, len(latencies) * 99 // 100)] if latencies else 0.0


def median(seconds: list[float]) -> float:
    return statistics.median(seconds) if seconds else 0.0


def query(file: pathlib.Path, sql: str) -> list[tuple]:
    """Rows of a file that the gateway may be writing."""
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=10)) as connection:
        return connection.execute(sql).fetchall()


class GeoPackage:
    """The layer of a gateway without a configuration, and its embedded store."""

    def __init__(self, data: pathlib.Path):
        self.data, self.file = data, data / "features.gpkg"

    def count(self) -> int:
        try:
            return query(self.file, "SELECT count(*) FROM features")[0][0]
        except sqlite3.OperationalError:
            # The layer is made with its first row.
            return 0

    def rows(self) -> list[tuple[str, str, int]]:
        return query(self.file, "SELECT geonce_key, geonce_event, n FROM features")

    def proofs(self) -> int:
        return query(self.file, "SELECT count(*) FROM gpkg_geonce_applied")[0][0]

    def damage(self) -> list[str]:
        files = (self.data / "geonce.db", self.file)
        return [f"{file.name} is not whole" for file in files if not (file.exists() and whole(file))]


def drain(layer, rows: int, seconds: float = 20) -> None:
    """Waits until the sink has this many rows; gives up when it has stood still for `seconds`."""
    moved, before = time.monotonic(), -1
    while time.monotonic() < moved + seconds:
        now = layer.count()
        if now >= rows:
            return
        if now != before:
            moved, before = time.monotonic(), now
        time.sleep(DRAIN_PAUSE_SECONDS)


def whole(file: pathlib.Path) -> bool:
    """Whether SQLite finds the file whole."""
    return query(file, "PRAGMA integrity_check") == [("ok",)]


def settle(gateway, seconds: float = 20) -> None:
    """Waits until nothing waits: what is at the sink may still have to be noted in the store. Gives up when as many have
    waited for `seconds`: how long it takes in all is the machine's matter."""
    moved, before = time.monotonic(), None
    while time.monotonic() < moved + seconds:
        now = gateway.ledger()[1].get("waiting")
        if now == 0:
            return
        # Books that could not be read are no progress.
        if now not in (None, before):
            moved, before = time.monotonic(), now
        time.sleep(DRAIN_PAUSE_SECONDS)


def hold(result: Result, gateways, traffic, dead_allowed: int = 0, layer=None) -> None:
    """Stops the gateways and holds the law against what they leave behind."""
    gateways = gateways if isinstance(gateways, list) else [gateways]
    layer = layer or GeoPackage(gateways[0].data)
    drain(layer, len(traffic.acknowledged) + len(traffic.others), seconds=3 if dead_allowed else 20)
    # What is dead never comes to the sink, so that a sink which stands still does not say that nothing waits.
    if len(gateways) > 1 or dead_allowed:
        settle(gateways[0])
    for gateway in gateways:
        code = gateway.stop()
        result.require(code == 0, f"{gateway.instance} stopped with {code}")
    result.sent, result.acked = traffic.deliveries, len(traffic.acknowledged)
    result.p99 = percentile_99(traffic.latencies)
    sums, books = gateways[0].ledger()
    result.require(sums, f"doctor: the books do not sum: {books}")
    result.dead, waiting = books.get("dead", 0), books.get("waiting", 0)
    result.require(result.dead <= dead_allowed, f"{result.dead} events are dead")
    result.require(waiting == 0, f"{waiting} events still wait")
    try:
        rows = layer.rows()
    except sqlite3.OperationalError as error:
        result.violations.append(f"the layer cannot be read: {error}")
        rows = []
    ours = [row for row in rows if row[1] not in traffic.others]
    numbers = {number for _, _, number in ours}
    missing = [number for number in traffic.acknowledged if number not in numbers]
    missing += traffic.others - {event for _, event, _ in rows}
    result.lost = max(0, len(missing) - result.dead - waiting)
    result.dup = max(len(rows) - len({key for key, _, _ in rows}), len(ours) - len(numbers))
    strange = [row for row in ours if row[2] not in range(traffic.numbers)]
    # A provisional answer may name a copy: the first was recorded where it could not be looked for, and its answer lost.
    renamed = [row for row in ours if not traffic.provisional and row[1] not in traffic.names.get(row[2], {row[1]})]
    result.phantom = len(strange) + len(renamed)
    if rows:
        proofs = layer.proofs()
        result.require(proofs == len(rows), f"{proofs} proofs for {len(rows)} rows")
    result.violations += layer.damage()
    result.violations += traffic.wrong


def trial(result: Result, gateways, traffic, scenario, dead_allowed: int = 0, layer=None) -> None:
    """Runs a scenario against gateways and holds the law against what they leave behind."""
    start = time.monotonic()
    try:
        asyncio.run(scenario)
        hold(result, gateways, traffic, dead_allowed, layer)
    finally:
        for gateway in gateways if isinstance(gateways, list) else [gateways]:
            gateway.kill()
    result.seconds = time.monotonic() - start


def options(doc: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/debug/geonce")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()
