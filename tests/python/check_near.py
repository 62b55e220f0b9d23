"""How near two geometries are, beside shapely, pyproj and h3.

Usage: check_near.py BINARY [--corpora DIR] [--reference DIR] [--count N] [--seed N] [--scale F]

BINARY is the built example `near`. Positions are rounded to 1e-9 degree before both sides see them, so that rounding is no
difference. Tolerances: metres 1 micrometre + 1e-9 (pyproj.Geod); vertex 1 micrometre + 2e-6, as a straight line through the
Earth is shorter than the way on the ground; hausdorff and frechet 2e-3, as shapely measures in one plane for the whole shape
and geonce in a plane at each vertex, or in space; iou 1e-7; cells none. DIR of --corpora holds naturalearth/; without it that
part is left out, and the check says so. DIR of --reference holds gen_workload.py, whose noise is to be recognised: 99.9 % of
noisy copies, and no other event, within THRESHOLD metres.
"""

import argparse
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

import h3
import pyproj
import shapely
from shapely.geometry import mapping, shape

from check_workload import generate

GEOD = pyproj.Geod(ellps="WGS84")
A, E2 = 6378137.0, 0.0066943799901413165
# What docs/measures.md proposes for recognising one measurement that was written down twice.
THRESHOLD = 0.01
RECALL_MIN = 0.999
# For each pair of lines, whether GEOS agrees with the definition.
LEASHES = []
WORKLOAD = {"a": 20_000, "b": 2_000, "c": 10, "d": 500}


def round9(body):
    return round(body, 9) if isinstance(body, (int, float)) else [round9(item) for item in body]


def geometry(kind, coordinates):
    return {"type": kind, "coordinates": round9(coordinates)}


def ask(binary, requests):
    text = "\n".join(json.dumps(request) for request in requests)
    run = subprocess.run([binary], input=text, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"the program failed: {run.stderr}")
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    if len(answers) != len(requests):
        sys.exit(f"{len(answers)} answers to {len(requests)} pairs")
    return answers


class Shapes:
    """Shapes anywhere on Earth but within 20 degrees of a pole, where one plane for a shape says little."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def place(self, north=70.0):
        return self.random.uniform(-179, 179), self.random.uniform(-north, north)

    def near(self, lon, lat, metres):
        """A place that many metres away."""
        lon, lat, _ = GEOD.fwd(lon, lat, self.random.uniform(0, 360), metres)
        return [lon, lat]

    def ring(self, lon, lat, metres, count):
        angles = sorted(self.random.uniform(0, 360) for _ in range(count))
        ring = [list(GEOD.fwd(lon, lat, angle, metres * self.random.uniform(0.5, 1))[:2]) for angle in angles]
        return [*ring, ring[0]]

    def line(self, lon, lat, metres, count):
        step = metres / count
        return [self.near(lon + i * step / 111_000 / math.cos(math.radians(lat)), lat, step) for i in range(count)]

    def moved(self, path, metres, closed=False):
        """The path with every vertex moved; a ring starts elsewhere and may run the other way."""
        path = [self.near(*position, self.random.uniform(0, metres)) for position in (path[:-1] if closed else path)]
        if not closed:
            return path
        start = self.random.randrange(len(path))
        path = path[start:] + path[:start]
        if self.random.random() < 0.5:
            path.reverse()
        return [*path, path[0]]


def plane(geo, lat):
    """A shapely geometry in metres around a latitude."""
    sin = math.sin(math.radians(lat))
    bend = 1 - E2 * sin * sin
    across = A / math.sqrt(bend)
    scale = [math.radians(1) * across * math.cos(math.radians(lat)), math.radians(1) * across * (1 - E2) / bend]
    return shapely.transform(shape(geo), lambda positions: positions * scale)


def geodesic(a, b):
    return GEOD.inv(*a, *b)[2]


def ring_displacement(a, b):
    """By its definition: the least of the largest displacements over all starts and both directions."""
    a, b = a[:-1], b[:-1]
    turned = [way[k:] + way[:k] for way in (b, b[::-1]) for k in range(len(b))]
    return min(max(geodesic(p, q) for p, q in zip(a, other)) for other in turned)


def leash(a, b):
    """The discrete Fréchet distance by its definition. GEOS 3.14 answers a little more now and then, never less."""
    before = None
    for p in a.coords:
        here = []
        for j, q in enumerate(b.coords):
            ways = here[-1:] + ([before[j], *before[max(0, j - 1):j]] if before else [])
            here.append(max(math.dist(p, q), min(ways, default=0.0)))
        before = here
    geos = shapely.frechet_distance(a, b)
    LEASHES.append(abs(geos - before[-1]) <= 1e-9 * geos)
    if geos < before[-1] * (1 - 1e-9):
        sys.exit(f"GEOS found a shorter leash: {geos} and {before[-1]}: {a} {b}")
    return before[-1]


def requests_of(shapes, count):
    """Pairs with what is expected of them and the tolerance: (request, value, relative, absolute)."""
    r = shapes.random
    for _ in range(count):
        lon, lat = shapes.place(89.9)
        far = 10 ** r.uniform(-3, 4.6)
        a, b = round9([lon, lat]), round9(shapes.near(lon, lat, far))
        yield request("metres", geometry("Point", a), geometry("Point", b), 50_000), geodesic(a, b), 1e-9, 1e-6
        size, noise = 10 ** r.uniform(0, 4), 10 ** r.uniform(-3, 1)
        a = round9(shapes.ring(lon, lat, size, r.randint(4, 20)))
        b = round9(shapes.moved(a, noise, closed=True))
        pair = geometry("Polygon", [a]), geometry("Polygon", [b])
        yield request("vertex", *pair, 100), ring_displacement(a, b), 2e-6, 1e-6
        lon, lat = shapes.place()
        size, noise = 10 ** r.uniform(1, 3.3), 10 ** r.uniform(-2, 2)
        a = shapes.line(lon, lat, size, r.randint(2, 30))
        b = [p for p in shapes.moved(a, noise) if r.random() < 0.9] or a[:1]
        b = b if len(b) > 1 else a[:2]
        pair = geometry("LineString", a), geometry("LineString", b)
        planes = [plane(geo, lat) for geo in pair]
        for measure, expected in (("hausdorff", planes[0].hausdorff_distance(planes[1])), ("frechet", leash(*planes))):
            yield request(measure, *pair, 50_000), expected, 2e-3, 1e-3
        hole = [p for p in shapes.ring(lon, lat, size * 0.3, 6)]
        pair = [geometry("Polygon", [shapes.ring(lon, lat, size, r.randint(4, 30)), hole]) for _ in "ab"]
        # A ring of few vertices may leave the hole outside; what that means is another check's affair.
        pair = [geo if shape(geo).is_valid else geometry("Polygon", geo["coordinates"][:1]) for geo in pair]
        planes = [plane(geo, lat) for geo in pair]
        yield request("hausdorff", *pair, 50_000), planes[0].hausdorff_distance(planes[1]), 2e-3, 1e-3
        yield areas(pair)


def areas(pair):
    a, b = (shapely.make_valid(shape(geo)) for geo in pair)
    both = a.union(b).area
    return request("iou", *pair, 1e-9, within=1), a.intersection(b).area / both if both else 0.0, 0, 1e-7


def request(measure, a, b, threshold, **more):
    return {"measure": measure, "a": a, "b": b, "threshold": threshold, **more}


def check_pairs(binary, pairs, wrong):
    counts = {}
    for (asked, expected, relative, absolute), found in zip(pairs, ask(binary, [pair[0] for pair in pairs])):
        measure, limit = asked["measure"], asked["threshold"]
        counts[measure] = counts.get(measure, 0) + 1
        tolerance = absolute + relative * abs(expected)
        beyond = expected < limit if measure == "iou" else expected > limit
        close = abs(expected - limit) <= tolerance
        if found["value"] is None and not ((beyond or close) and found["answer"] == "apart"):
            wrong.append(f"{measure}: {expected} expected, {found['answer']} found: {json.dumps(asked)}")
        elif found["value"] is not None and abs(found["value"] - expected) > tolerance:
            wrong.append(f"{measure}: {expected} expected, {found['value']} found: {json.dumps(asked)}")
    print("  ".join(f"{name} {count}" for name, count in sorted(counts.items())), "pairs compared")


def anchor(geo):
    """The centre of the box around a geometry in space, and its distance from the middle."""
    positions = shapely.get_coordinates(shape(geo))
    places = [(math.cos(math.radians(y)) * math.cos(math.radians(x)),
               math.cos(math.radians(y)) * math.sin(math.radians(x)), math.sin(math.radians(y))) for x, y in positions]
    return [(min(p[i] for p in places) + max(p[i] for p in places)) / 2 for i in range(3)]


def check_cells(binary, shapes, count, wrong):
    """Homes are h3's cells of the anchor, and what is around is the home or its disk."""
    asked = []
    for _ in range(count):
        lon, lat = shapes.place(89.99)
        radius = 10 ** shapes.random.uniform(-2, 4.6)
        a = shapes.ring(lon, lat, radius * shapes.random.uniform(1, 20), 5)
        b = shapes.moved(a, radius, closed=True)
        asked.append(request("vertex", geometry("LineString", a), geometry("LineString", b), radius))
    alone = 0
    for pair, found in zip(asked, ask(binary, asked)):
        x, y, z = anchor(pair["a"])
        lat, lon = math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x))
        home = h3.latlng_to_cell(lat, lon, found["resolution"])
        disk = sorted(h3.grid_disk(home, 1), key=lambda cell: int(cell, 16))
        alone += len(found["around"]) == 1
        if found["home"][0] != home or found["around"] not in ([home], disk):
            wrong.append(f"cells: {home} expected, {found['home'][0]} found: {json.dumps(pair)}")
        search = 4 * 2 * math.sqrt(3) * pair["threshold"]
        finer = found["resolution"] + 1
        if finer <= 15 and search < 0.9 * h3.average_hexagon_edge_length(finer, unit="m"):
            wrong.append(f"cells: resolution {found['resolution']} is too coarse for {pair['threshold']} m")
    print(f"cells {count} geometries compared, {alone} need one cell")


def natural_earth(corpora, shapes):
    """Countries with noise: every measure at the size of the real world."""
    import pyogrio

    for geo in pyogrio.read_dataframe(corpora / "naturalearth" / "naturalearth_lowres.shp").geometry:
        a = mapping(geo)
        a = geometry(a["type"], json.loads(json.dumps(a["coordinates"])))

        def drift(position):
            if isinstance(position[0], (int, float)):
                return [min(180, max(-180, position[0] + shapes.random.uniform(-1e-9, 1e-9))),
                        min(90, max(-90, position[1] + shapes.random.uniform(-1e-9, 1e-9)))]
            return [drift(item) for item in position]

        b = geometry(a["type"], drift(a["coordinates"]))
        rings = b["coordinates"] if a["type"] == "Polygon" else [r for part in b["coordinates"] for r in part]
        for ring in rings:
            ring[-1] = ring[0]
        for measure in ("vertex", "hausdorff"):
            # Noise of two units of the grid on each axis at most.
            yield request(measure, a, b, 0.001), 0.0, 0, 0.0004
        shifted = geometry(a["type"], mapping(shapely.affinity.scale(geo, 0.99, 0.99))["coordinates"])
        yield areas((a, shifted))


def check_workload(binary, script, seed, scale, wrong):
    for cls, events in WORKLOAD.items():
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            events = max(1, int(events * scale))
            generate(script, seed, cls, events, out)
            shapes = {name: [json.loads(line)["geometry"] for line in (out / f"{name}.ndjson").open()]
                      for name in (f"off_{cls}_base", f"off_{cls}_noise", f"base_{cls}", f"neg_{cls}_moved_vertex")}

            def near(a, b):
                asked = [request("vertex", a, b, THRESHOLD) for a, b in zip(shapes[a], shapes[b])]
                answers = ask(binary, asked)
                found = sum(answer["home"][1] in answer["around"] for answer in answers if answer["answer"] == "near")
                if any(answer["answer"] == "over budget" for answer in answers):
                    wrong.append(f"{cls}: the budget ran out")
                return found / len(asked)

            recall, merged = near(f"off_{cls}_base", f"off_{cls}_noise"), near(f"base_{cls}", f"neg_{cls}_moved_vertex")
            print(f"workload {cls}: {events} events, recall {100 * recall:.3f} %, {merged * events:.0f} others merged")
            if recall < RECALL_MIN or merged:
                wrong.append(f"workload {cls}: recall {recall}, merged {merged}")


def main():
    here = pathlib.Path(__file__).resolve().parents[2].parent / "shared" / "reference"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--corpora", type=pathlib.Path)
    parser.add_argument("--reference", type=pathlib.Path, default=here)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the workload")
    given = parser.parse_args()
    wrong, shapes = [], Shapes(given.seed)
    check_pairs(given.binary, list(requests_of(shapes, given.count)), wrong)
    if sum(LEASHES) < 0.95 * len(LEASHES):
        wrong.append(f"frechet: GEOS agrees with the definition on {sum(LEASHES)} of {len(LEASHES)} pairs only")
    check_cells(given.binary, shapes, given.count, wrong)
    if given.corpora:
        check_pairs(given.binary, list(natural_earth(given.corpora, shapes)), wrong)
    else:
        print("Natural Earth: LEFT OUT, no --corpora given")
    script = given.reference / "gen_workload.py"
    if script.is_file():
        check_workload(given.binary, script, given.seed, given.scale, wrong)
    else:
        print(f"workload: LEFT OUT, {script} is not there")
    print("\n".join(wrong[:20]) if wrong else "every distance agrees")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
