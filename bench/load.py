"""`geonce load` beside `ogr2ogr`, in one run: both sides of every comparison, medians, ratios, bars.

    python bench/load.py [--repeat 3] [--points 1000000] [--polygons 200000] [--large 2] [--only first,again,changed,memory]

first    one million points and 200,000 polygons, from GeoPackage and shapefile, into PostGIS and GeoPackage: geonce and ogr2ogr
         (PG_USE_COPY), each into a fresh layer that has its spatial index at the end
again    the same command a second time, beside the first
changed  upsert of a file of which one percent changed, beside loading it all
memory   the largest resident size while loading a file of --large gigabytes

Needs ogr2ogr, PostgreSQL with PostGIS, and `make release`; everything is made in a folder under --folder and removed afterwards.
"""

import argparse
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "faults"))
from services import Database, Services  # noqa: E402

BARS = {"first": 1.5, "again": 50.0, "changed": 3.0, "memory": 200.0}


def timed(command: list[str]) -> float:
    """How many seconds a command took."""
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took = time.monotonic() - began
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.returncode}\n{done.stderr[-2000:]}")
    return took


def largest(command: list[str]) -> float:
    """The largest resident size of a command, in megabytes."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0.0
    while process.poll() is None:
        try:
            lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
        except OSError:
            break
        for line in lines:
            if line.startswith("VmHWM:"):
                peak = max(peak, int(line.split()[1]) / 1024)
        time.sleep(0.02)
    if process.wait() != 0:
        raise SystemExit(f"{' '.join(command)}: {process.returncode}")
    return peak


def write_points(path: pathlib.Path, count: int, changed: int = 0) -> None:
    random.seed(7)
    with path.open("w") as out:
        out.write("id,name,height,lon,lat\n")
        for i in range(count):
            lon, lat = random.uniform(-180, 180), random.uniform(-85, 85)
            name = f"changed {i}" if changed and i % changed == 0 else f"point {i}"
            out.write(f"{i},{name},{i % 900 / 8},{lon:.7f},{lat:.7f}\n")


def write_polygons(path: pathlib.Path, count: int) -> None:
    random.seed(8)
    shape = [(0, 0), (2, -1), (4, 0), (6, -1), (8, 0), (8, 2), (9, 4), (8, 6), (8, 8), (6, 9), (4, 8), (2, 9), (0, 8), (-1, 6), (0, 4), (-1, 2)]
    with path.open("w") as out:
        out.write("id,owner,area,wkt\n")
        for i in range(count):
            x, y = random.uniform(-179, 179), random.uniform(-84, 84)
            ring = [f"{x + dx * 1e-4:.7f} {y + dy * 1e-4:.7f}" for dx, dy in shape]
            out.write(f'{i},owner {i % 1000},{i * 1.25},"POLYGON (({", ".join([*ring, ring[0]])}))"\n')


def convert(csv: pathlib.Path, target: pathlib.Path, geometry: list[str]) -> None:
    driver = {".gpkg": "GPKG", ".shp": "ESRI Shapefile"}[target.suffix]
    command = ["ogr2ogr", "-f", driver, target, csv, "-nln", target.stem, "-a_srs", "EPSG:4326", *geometry]
    subprocess.run([*command, "-oo", "AUTODETECT_TYPE=YES"], check=True)


class Bench:
    def __init__(self, options, folder: pathlib.Path, database: Database):
        self.options, self.folder, self.database = options, folder, database
        self.binary = options.binary
        self.failed = False
        self.number = 0

    def fresh(self) -> str:
        self.number += 1
        return f"layer_{self.number}"

    def geonce(self, source: pathlib.Path, destination: str, layer: str, *more: str, data: str | None = None) -> list[str]:
        data = data or str(self.folder / f"data-{layer}")
        return [str(self.binary), "load", str(source), destination, "--layer", layer, "--data", data, "--progress", "none", *more]

    def ogr2ogr(self, source: pathlib.Path, destination: str, layer: str) -> list[str]:
        if destination.startswith("postgresql://"):
            return ["ogr2ogr", "-f", "PostgreSQL", f"PG:{destination}", str(source), "-nln", layer, "-lco", "GEOMETRY_NAME=geom",
                    "--config", "PG_USE_COPY", "YES", "-nlt", "GEOMETRY"]
        return ["ogr2ogr", "-f", "GPKG", destination, str(source), "-nln", layer]

    def say(self, name: str, value: float, unit: str, bar: float, good: bool) -> None:
        self.failed |= not good
        print(f"{name:<44} {value:8.2f} {unit:<14} bar {bar:g}  {'ok' if good else 'MISSED'}", flush=True)

    def destination(self, kind: str) -> str:
        return self.database.direct if kind == "postgis" else str(self.folder / f"{self.fresh()}.gpkg")

    def first(self, files: dict[str, pathlib.Path]) -> None:
        for name, source in files.items():
            for kind in ("postgis", "gpkg"):
                ours, theirs = [], []
                for _ in range(self.options.repeat):
                    layer = self.fresh()
                    destination = self.destination(kind)
                    ours.append(timed(self.geonce(source, destination, layer)))
                    self.drop(kind, destination, layer)
                    layer = self.fresh()
                    destination = self.destination(kind)
                    theirs.append(timed(self.ogr2ogr(source, destination, layer)))
                    self.drop(kind, destination, layer)
                a, b = statistics.median(ours), statistics.median(theirs)
                print(f"{name} -> {kind}: geonce {a:.2f} s, ogr2ogr {b:.2f} s")
                self.say(f"first load, {name} -> {kind}", a / b, "x ogr2ogr", BARS["first"], a / b <= BARS["first"])

    def drop(self, kind: str, destination: str, layer: str) -> None:
        if kind == "postgis":
            self.database.sql(f"DROP TABLE {layer}")
        else:
            pathlib.Path(destination).unlink()

    def again(self, files: dict[str, pathlib.Path]) -> None:
        source = files["points.gpkg"]
        for kind in ("postgis", "gpkg"):
            layer, destination = self.fresh(), self.destination(kind)
            command = self.geonce(source, destination, layer)
            once = timed(command)
            twice = statistics.median(timed(command) for _ in range(5))
            trusted = [*command, "--trust-mtime"]
            timed(trusted)
            trusting = statistics.median(timed(trusted) for _ in range(5))
            print(f"{kind}: first {once:.2f} s, again {twice:.3f} s, with --trust-mtime {trusting:.3f} s")
            self.say(f"second run, {kind}", once / twice, "x faster", BARS["again"], once / twice >= BARS["again"])
            self.drop(kind, destination, layer)

    def changed(self, files: dict[str, pathlib.Path]) -> None:
        for kind in ("postgis", "gpkg"):
            upsert = ("--mode", "upsert", "--identity", "id")
            whole, part = [], []
            for _ in range(self.options.repeat):
                layer, destination = self.fresh(), self.destination(kind)
                whole.append(timed(self.geonce(files["points.gpkg"], destination, layer, *upsert)))
                part.append(timed(self.geonce(files["changed.gpkg"], destination, layer, *upsert)))
                self.drop(kind, destination, layer)
            a, b = statistics.median(whole), statistics.median(part)
            print(f"{kind}: all {a:.2f} s, one percent changed {b:.2f} s")
            self.say(f"upsert of 1 % changed, {kind}", a / b, "x faster", BARS["changed"], a / b >= BARS["changed"])

    def memory(self) -> None:
        source = self.folder / "large.geojson"
        row = '{"type":"Feature","properties":{"id":%d,"name":"' + "x" * 200 + '"},"geometry":{"type":"Point","coordinates":[%.7f,%.7f]}}'
        with source.open("w") as out:
            out.write('{"type":"FeatureCollection","features":[\n')
            number = 0
            while out.tell() < self.options.large * 1e9 if number % 10_000 == 0 else True:
                out.write((",\n" if number else "") + row % (number, random.uniform(-180, 180), random.uniform(-85, 85)))
                number += 1
            out.write("\n]}\n")
        for kind in ("postgis", "gpkg"):
            layer, destination = self.fresh(), self.destination(kind)
            peak = largest(self.geonce(source, destination, layer))
            self.say(f"{source.stat().st_size / 1e9:.1f} GB of GeoJSON -> {kind}", peak, "MB", BARS["memory"], peak < BARS["memory"])
            self.drop(kind, destination, layer)
        source.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--polygons", type=int, default=200_000)
    parser.add_argument("--large", type=float, default=2.0, help="gigabytes")
    parser.add_argument("--only", default="first,again,changed,memory")
    parser.add_argument("--folder", default=None)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target" / "release" / "geonce")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="geonce-bench-", dir=options.folder))
    try:
        with Services(str(options.binary)) as services:
            bench = Bench(options, folder, Database(services))
            parts = options.only.split(",")
            files = {}
            if {"first", "again", "changed"} & set(parts):
                write_points(folder / "points.csv", options.points)
                write_points(folder / "changed.csv", options.points, changed=100)
                at = ["-oo", "X_POSSIBLE_NAMES=lon", "-oo", "Y_POSSIBLE_NAMES=lat"]
                for name in ("points.gpkg", "changed.gpkg", "points.shp"):
                    files[name] = folder / name
                    csv = folder / ("changed.csv" if name == "changed.gpkg" else "points.csv")
                    convert(csv, files[name], at)
                write_polygons(folder / "polygons.csv", options.polygons)
                for name in ("polygons.gpkg", "polygons.shp"):
                    files[name] = folder / name
                    convert(folder / "polygons.csv", files[name], ["-oo", "GEOM_POSSIBLE_NAMES=wkt"])
            if "first" in parts:
                bench.first({name: file for name, file in files.items() if name != "changed.gpkg"})
            if "again" in parts:
                bench.again(files)
            if "changed" in parts:
                bench.changed(files)
            if "memory" in parts:
                bench.memory()
    finally:
        shutil.rmtree(folder)
    sys.exit(1 if bench.failed else 0)


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    main()
