"""Loads that are disturbed at random moments: `geonce load` is killed, its connection to PostGIS is ended by the server, the network
gets slow or breaks off. The next run ends what was begun. Row count and content are those of an undisturbed load, and nobody ever
sees half of one. Two runners at once: one loads, the other says the same.
"""

import contextlib
import hashlib
import json
import pathlib
import random
import sqlite3
import subprocess
import sys
import tempfile
import time

from law import Result, options
from services import Database, Services

FEATURES = 40_000
CHUNK = 7_500
ROUNDS = 30
LEASE = "1s"
RUN_SECONDS_MAX = 60
MODES = [("append", None), ("append", CHUNK), ("upsert", None), ("upsert", CHUNK), ("replace", None), ("replace", CHUNK)]


def write(path: pathlib.Path, seed: int) -> int:
    """Writes features, some of them not valid; how many are."""
    rng = random.Random(seed)
    valid = 0
    with path.open("w") as out:
        for number in range(FEATURES):
            x, y = rng.uniform(-170, 170), rng.uniform(-80, 80)
            d = 0.001
            if number % 1_000 == 500:
                ring = [[x, y], [x + d, y + d], [x + d, y], [x, y + d], [x, y]]
            else:
                ring = [[x, y], [x + d, y], [x + d, y + d], [x, y + d], [x, y]]
                valid += 1
            feature = {"type": "Feature", "properties": {"n": number, "name": f"zone {number}"},
                       "geometry": {"type": "Polygon", "coordinates": [ring]}}
            out.write(json.dumps(feature) + "\n")
    return valid


class PostGisLayer:
    def __init__(self, database: Database, name: str):
        self.database, self.name, self.destination = database, name, database.url

    def digest(self) -> tuple[int, str]:
        sql = f"SELECT n, name, geonce_key, encode(ST_AsBinary(geom), 'hex') FROM {self.name} ORDER BY n, name"
        return digest(self.database.sql(sql))

    def count(self) -> int:
        if self.database.sql(f"SELECT to_regclass('{self.name}') IS NULL")[0][0] == "t":
            return 0
        return int(self.database.sql(f"SELECT count(*) FROM {self.name}")[0][0])

    def has_index(self) -> bool:
        sql = f"SELECT count(*) FROM pg_indexes WHERE tablename = '{self.name}' AND indexdef LIKE '%gist%'"
        return self.database.sql(sql)[0][0] != "0"

    def disturb(self, rng: random.Random, process: subprocess.Popen) -> str:
        how = rng.choice(["kill", "kill", "terminate", "reset", "slow"])
        if how == "kill":
            process.kill()
        elif how == "terminate":
            self.database.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                              "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
        elif how == "reset":
            self.database.fault("reset")
            time.sleep(0.2)
            self.database.fault("none")
        else:
            self.database.fault("delay", 20)
            time.sleep(0.5)
            self.database.fault("none")
            process.kill()
        return how


class GeoPackageLayer:
    def __init__(self, folder: pathlib.Path, name: str):
        self.file, self.name = folder / f"{name}.gpkg", name
        self.destination = str(self.file)

    def rows(self, sql: str) -> list:
        with contextlib.closing(sqlite3.connect(self.file, timeout=30)) as connection:
            return connection.execute(sql).fetchall()

    def digest(self) -> tuple[int, str]:
        return digest(self.rows(f"SELECT n, name, geonce_key, hex(geom) FROM {self.name} ORDER BY n, name"))

    def count(self) -> int:
        if not self.file.exists() or not self.rows(f"SELECT 1 FROM sqlite_master WHERE name = '{self.name}'"):
            return 0
        return self.rows(f"SELECT count(*) FROM {self.name}")[0][0]

    def has_index(self) -> bool:
        count = self.rows(f"SELECT count(*) FROM rtree_{self.name}_geom")[0][0]
        return count == self.count()

    def disturb(self, _rng: random.Random, process: subprocess.Popen) -> str:
        process.kill()
        return "kill"


def digest(rows: list) -> tuple[int, str]:
    return len(rows), hashlib.sha256("\n".join("|".join(map(str, row)) for row in rows).encode()).hexdigest()


class Trial:
    def __init__(self, given, folder: pathlib.Path, file: pathlib.Path):
        self.binary, self.folder, self.file = given.binary, folder, file

    def start(self, layer, mode: str, chunk: int | None) -> subprocess.Popen:
        command = [self.binary, "load", self.file, layer.destination, "--layer", layer.name, "--mode", mode, "--json",
                   "--data", self.folder / f"data-{layer.name}", "--lease", LEASE, "--progress", "none"]
        if mode == "upsert":
            command += ["--identity", "n"]
        if chunk:
            command += ["--chunk", str(chunk)]
        return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process: subprocess.Popen) -> tuple[int, dict, str]:
        out, err = process.communicate(timeout=RUN_SECONDS_MAX)
        return process.returncode, json.loads(out) if out.strip() else {}, err

    def load(self, layer, mode: str, chunk: int | None) -> tuple[int, dict, str]:
        return self.finish(self.start(layer, mode, chunk))


def disturbed(trial: Trial, layer, how: tuple, seconds: float, expected: tuple, rng: random.Random, result: Result) -> str:
    """One load that is disturbed; the next runs end it."""
    (mode, chunk), (valid, content) = how, expected
    process = trial.start(layer, mode, chunk)
    time.sleep(rng.uniform(0, 0.9 * seconds))
    what = layer.disturb(rng, process) if process.poll() is None else "late"
    seen = layer.count()
    whole = [0, valid]
    if chunk and mode != "replace":
        bad = [number for number in range(FEATURES) if number % 1_000 == 500]
        whole += [end - sum(number < end for number in bad) for end in range(chunk, FEATURES, chunk)]
    result.require(seen in whole, f"{layer.name} {mode} {chunk} {what}: {seen} rows were to be seen")
    trial.finish(process)
    for _ in range(3):
        code, report, error = trial.load(layer, mode, chunk)
        if code == 1:
            break
    result.require(code == 1 and report.get("rejected") == FEATURES - valid, f"{layer.name} {mode} {chunk} {what}: {code} {report} {error}")
    result.require(layer.digest() == (valid, content), f"{layer.name} {mode} {chunk} {what}: the rows differ: {layer.count()} of {valid}")
    result.require(layer.has_index(), f"{layer.name} {mode} {chunk} {what}: there is no spatial index")
    return what


def two_at_once(trial: Trial, layer, result: Result, valid: int) -> None:
    pair = [trial.start(layer, "append", None) for _ in range(2)]
    ends = [trial.finish(process) for process in pair]
    outcomes = sorted(report.get("outcome", error) for _, report, error in ends)
    result.require(outcomes == ["already", "loaded"], f"two at once: {outcomes}")
    same = len({json.dumps({**report, "outcome": None}, sort_keys=True) for _, report, _ in ends}) == 1
    result.require(same, f"two at once say different things: {ends}")
    result.require(layer.count() == valid, f"two at once: {layer.count()} rows, not {valid}")


def main() -> int:
    given = options(__doc__)
    result = Result("load", given.seed)
    rng = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as name, Services(given.binary) as services:
        folder, database = pathlib.Path(name), Database(services)
        file = folder / "zones.ndjson"
        valid = write(file, given.seed)
        trial = Trial(given, folder, file)
        kinds = {"postgis": lambda name: PostGisLayer(database, name), "gpkg": lambda name: GeoPackageLayer(folder, name)}
        calm = {}
        for kind, layer_of in kinds.items():
            for number, (mode, chunk) in enumerate(MODES):
                layer = layer_of(f"calm_{kind}_{number}")
                began = time.monotonic()
                code, report, error = trial.load(layer, mode, chunk)
                seconds = time.monotonic() - began
                result.require(code == 1 and report.get("inserted") == valid, f"an undisturbed load: {code} {report} {error}")
                calm[kind, mode, chunk] = seconds, layer.digest()
            two_at_once(trial, layer_of(f"pair_{kind}"), result, valid)
        whats: dict[str, int] = {}
        for number in range(ROUNDS):
            kind, how = ("postgis", "gpkg")[number % 2], MODES[number // 2 % len(MODES)]
            layer = kinds[kind](f"zones_{number}")
            seconds, expected = calm[kind, *how]
            what = disturbed(trial, layer, how, seconds, expected, rng, result)
            whats[what] = whats.get(what, 0) + 1
        result.more = {"rounds": ROUNDS, **whats}
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
