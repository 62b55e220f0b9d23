"""Repair of broken polygons beside shapely, in one run: the same 10,000 polygons, both sides in turn, medians, ratio.

    python bench/repair.py [--repeat 5] [--polygons 10000] [--seed 1]

whole     reading GeoJSON, repairing, writing GeoJSON: orjson and shapely beside geonce, which rounds to its grid too
alone     the repair only: shapely.make_valid(method="structure", keep_collapsed=False) on geometries that are there

The polygons are bow-ties, rings that cross themselves in many places, rings with spikes, and shells whose holes cross them. Needs
`make release-bench`, shapely and orjson.
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

import orjson
import shapely
import shapely.geometry

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "target" / "release" / "repair"


def bow_tie(chance: random.Random, x: float, y: float) -> list:
    size = chance.uniform(0.001, 0.05)
    return [[[x, y], [x + size, y + size], [x + size, y], [x, y + size], [x, y]]]


def tangle(chance: random.Random, x: float, y: float) -> list:
    """A star whose corners are visited out of order here and there."""
    count = chance.randrange(10, 200)
    ring = []
    for n in range(count):
        turn = 2 * math.pi * n / count
        far = chance.uniform(0.02, 0.05)
        ring.append([x + far * math.cos(turn), y + far * math.sin(turn)])
    for _ in range(max(1, count // 20)):
        place = chance.randrange(count - 1)
        ring[place], ring[place + 1] = ring[place + 1], ring[place]
    return [[*ring, ring[0]]]


def spiked(chance: random.Random, x: float, y: float) -> list:
    size = chance.uniform(0.001, 0.05)
    middle = [x + size / 2, y + size]
    ring = [[x, y], [x + size, y], [x + size, y + size], middle, [middle[0], y + 3 * size], middle, [x, y + size], [x, y]]
    return [ring]


def crossing_hole(chance: random.Random, x: float, y: float) -> list:
    size = chance.uniform(0.001, 0.05)
    shell = [[x, y], [x + size, y], [x + size, y + size], [x, y + size], [x, y]]
    left, low, high = x + size / 2, y + size / 4, y + size / 2
    hole = [[left, low], [left, high], [left + size, high], [left + size, low], [left, low]]
    return [shell, hole]


def polygons(count: int, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    lines = []
    for n in range(count):
        make = (bow_tie, tangle, spiked, crossing_hole)[n % 4]
        rings = make(chance, chance.uniform(-170, 170), chance.uniform(-80, 80))
        rounded = [[[round(x, 7), round(y, 7)] for x, y in ring] for ring in rings]
        feature = {"type": "Feature", "properties": {"n": n}, "geometry": {"type": "Polygon", "coordinates": rounded}}
        lines.append(orjson.dumps(feature))
    return lines


def by_shapely(lines: list[bytes]) -> tuple[float, float, float]:
    """Seconds for all of it and for the repair alone, and the area that comes out."""
    whole = alone = area = 0.0
    for line in lines:
        began = time.perf_counter()
        geometry = shapely.geometry.shape(orjson.loads(line)["geometry"])
        repairing = time.perf_counter()
        valid = shapely.make_valid(geometry, method="structure", keep_collapsed=False)
        alone += time.perf_counter() - repairing
        orjson.dumps(shapely.geometry.mapping(valid))
        whole += time.perf_counter() - began
        area += valid.area
    return whole, alone, area


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--polygons", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    lines = polygons(arguments.polygons, arguments.seed)
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "broken.ndjson"
        file.write_bytes(b"\n".join(lines) + b"\n")
        for _ in range(arguments.repeat):
            theirs.append(by_shapely(lines))
            ours.append(json.loads(subprocess.run([PROGRAM, file], capture_output=True, check=True).stdout))
    last = ours[-1]
    area = int(last["area_doubled"]) / 2 / 1e14
    print(f"{last['repaired']} of {len(lines)} repaired, {last['refused']} refused; area {area:.9f}, shapely {theirs[-1][2]:.9f} square degrees")
    for name, mine, other in [
        ("whole", [run["seconds"] for run in ours], [run[0] for run in theirs]),
        ("alone", [run["seconds_repairing"] for run in ours], [run[1] for run in theirs]),
    ]:
        a, b = statistics.median(mine), statistics.median(other)
        each = 1e6 / len(lines)
        print(f"{name:<6} geonce {a * each:8.1f} µs   shapely {b * each:8.1f} µs   {b / a:.2f} times as fast")


if __name__ == "__main__":
    main()
