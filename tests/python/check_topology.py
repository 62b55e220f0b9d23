"""Compares validity and repair on the integer grid with GEOS, through shapely.

Usage: check_topology.py BINARY [--corpora DIR] [--docs FILE] [--write]

BINARY is the compiled example `topology`. Fails when an answer differs in a way that is not accounted for, when a
count differs from the ones pinned here, or when the summary in the documentation is not the one measured (`--write`
brings it up to date).
"""

import argparse
import collections
import json
import math
import pathlib
import random
import re
import subprocess
import sys
from decimal import Decimal

import shapely
from shapely.geometry import shape as to_shape

SEED = 20261115
MARKS = ("<!-- generated -->", "<!-- /generated -->")

# Of the JTS corpus: answers compared, and cases left out by reason.
CORPUS_COMPARED = 895
CORPUS_LEFT_OUT = {
    "has a coordinate that is not finite": 6,
    "has an empty geometry": 12,
    "has no exact integer form below 2^50": 7,
    "is a LinearRing": 2,
}

SQUARE = [[0, 0], [40, 0], [40, 40], [0, 40], [0, 0]]


def square(x, y, size):
    return [[x, y], [x + size, y], [x + size, y + size], [x, y + size], [x, y]]


def pentagram():
    places = [(math.cos(2 * math.pi * i * 2 / 5), math.sin(2 * math.pi * i * 2 / 5)) for i in range(5)]
    ring = [[round(1000 * x), round(1000 * y)] for x, y in places]
    return ring + ring[:1]


HAND = {
    "square": [SQUARE],
    "square with a hole": [SQUARE, square(10, 10, 10)],
    "hole touches the shell at a vertex": [SQUARE, [[0, 0], [10, 20], [20, 10], [0, 0]]],
    "hole touches the shell inside an edge": [SQUARE, [[20, 0], [30, 10], [10, 10], [20, 0]]],
    "hole touches the shell twice": [SQUARE, [[20, 0], [30, 20], [20, 40], [10, 20], [20, 0]]],
    "holes touch at a vertex": [SQUARE, square(5, 5, 10), square(15, 15, 10)],
    "two holes in a ring of touches": [SQUARE, [[0, 20], [20, 10], [20, 20], [0, 20]], [[20, 20], [40, 20], [20, 30], [20, 20]]],
    "repeated positions": [[[0, 0], [0, 0], [40, 0], [40, 40], [40, 40], [0, 40], [0, 0], [0, 0]]],
    "bow-tie": [[[0, 0], [40, 40], [40, 0], [0, 40], [0, 0]]],
    "self-touching ring": [[[0, 0], [20, 0], [20, 20], [40, 20], [40, 40], [20, 40], [20, 20], [0, 20], [0, 0]]],
    "inverted hole": [[[0, 0], [60, 0], [60, 60], [0, 60], [0, 0], [10, 20], [20, 10], [0, 0]]],
    "inverted hole inside an edge": [[[0, 0], [60, 0], [60, 60], [0, 60], [0, 30], [20, 40], [20, 20], [0, 30], [0, 0]]],
    "overlapping holes": [SQUARE, square(5, 5, 15), square(15, 15, 15)],
    "nested holes": [SQUARE, square(5, 5, 30), square(10, 10, 10)],
    "duplicate hole": [SQUARE, square(10, 10, 10), square(10, 10, 10)],
    "duplicate hole, turned": [SQUARE, square(10, 10, 10), [[20, 10], [10, 10], [10, 20], [20, 20], [20, 10]]],
    "hole outside": [SQUARE, square(50, 50, 10)],
    "hole outside, touching": [SQUARE, square(40, 40, 10)],
    "hole around the shell": [square(10, 10, 10), SQUARE],
    "hole crosses the shell": [SQUARE, square(30, 10, 20)],
    "hole is the shell": [SQUARE, SQUARE],
    "hole shares an edge": [SQUARE, square(0, 10, 10)],
    "hole shares part of an edge and a corner": [SQUARE, square(0, 0, 10)],
    "spike outward": [[[0, 0], [40, 0], [40, 20], [60, 20], [40, 20], [40, 40], [0, 40], [0, 0]]],
    "spike inward": [[[0, 0], [40, 0], [40, 20], [20, 20], [40, 20], [40, 40], [0, 40], [0, 0]]],
    "spike along an edge": [[[0, 0], [40, 0], [60, 0], [40, 0], [40, 40], [0, 40], [0, 0]]],
    "spike in a hole": [SQUARE, [[10, 10], [20, 10], [20, 30], [20, 10], [20, 20], [10, 20], [10, 10]]],
    "collapsed to a line": [[[0, 0], [40, 0], [20, 0], [0, 0]]],
    "collapsed to a point": [[[5, 5], [5, 5], [5, 5], [5, 5]]],
    "there and back": [[[0, 0], [40, 40], [0, 0], [0, 0]]],
    "collapsed hole": [SQUARE, [[10, 10], [20, 20], [15, 15], [10, 10]]],
    "double winding": [SQUARE[:-1] + SQUARE],
    "double winding of two sizes": [[[0, 0], [40, 0], [40, 40], [0, 40], [0, 10], [30, 10], [30, 30], [0, 30], [0, 0]]],
    "pentagram": [pentagram()],
    "two triangles joined by a line": [[[0, 0], [10, 0], [10, 10], [0, 0], [0, 0], [-20, 0], [-30, 0], [-30, -10], [-20, 0], [0, 0]]],
}

HAND_MULTI = {
    "apart": [[SQUARE], [square(50, 50, 10)]],
    "touch at a vertex": [[SQUARE], [square(40, 40, 10)]],
    "touch at several points": [[SQUARE], [[[0, 40], [20, 60], [40, 40], [30, 50], [20, 40], [10, 50], [0, 40]]]],
    "share an edge": [[SQUARE], [square(40, 0, 40)]],
    "share part of an edge": [[SQUARE], [square(40, 10, 10)]],
    "overlap": [[SQUARE], [square(30, 30, 40)]],
    "duplicate": [[SQUARE], [SQUARE]],
    "nested": [[square(0, 0, 90)], [square(10, 10, 10)]],
    "nested, touching": [[SQUARE], [[[0, 0], [20, 10], [10, 20], [0, 0]]]],
    "in a hole": [[SQUARE, square(10, 10, 20)], [square(15, 15, 10)]],
    "in a hole, touching it at every corner": [[SQUARE, square(10, 10, 20)], [[[20, 10], [30, 20], [20, 30], [10, 20], [20, 10]]]],
    "fills a hole": [[SQUARE, square(10, 10, 20)], [square(10, 10, 20)]],
    "part with a hole in a hole": [[SQUARE, square(5, 5, 30)], [square(10, 10, 20), square(15, 15, 5)]],
    "bow-tie and square": [[[[0, 0], [40, 40], [40, 0], [0, 40], [0, 0]]], [square(100, 0, 10)]],
    "one part collapsed": [[SQUARE], [[[50, 50], [60, 60], [70, 70], [50, 50]]]],
}


def closed(ring):
    return ring + ring[:1]


def points(rng, count, size, x=0, y=0):
    return [[x + rng.randrange(size), y + rng.randrange(size)] for _ in range(count)]


def star(rng, count, size):
    """A ring round its middle; simple before rounding, and mostly after it."""
    angles = sorted(rng.random() * 2 * math.pi for _ in range(count))
    ring = []
    for angle in angles:
        radius = size * (0.2 + 0.8 * rng.random())
        ring.append([round(radius * math.cos(angle)), round(radius * math.sin(angle))])
    return closed(ring)


def pick(rng):
    return rng.choice([4, 6, 10, 30, 1_000, 10**6, 10**9, 36 * 10**10])


def generate():
    """Yields (class, type, coordinates)."""
    rng = random.Random(SEED)
    for coordinates in HAND.values():
        yield "by hand", "Polygon", coordinates
    for coordinates in HAND_MULTI.values():
        yield "by hand", "MultiPolygon", coordinates
    for _ in range(1500):
        yield "random ring", "Polygon", [closed(points(rng, rng.randint(3, 16), pick(rng)))]
    for _ in range(1500):
        size = pick(rng)
        holes = [closed(points(rng, rng.randint(3, 5), max(size // 2, 3), rng.randrange(size), rng.randrange(size))) for _ in range(rng.randint(1, 3))]
        shell = star(rng, rng.randint(4, 12), size) if rng.random() < 0.5 else square(0, 0, size)
        yield "ring with holes", "Polygon", [shell] + holes
    for _ in range(1000):
        yield "star", "Polygon", [star(rng, rng.randint(3, 60), max(pick(rng), 10))]
    for _ in range(1000):
        size = rng.choice([6, 8, 12, 20])
        cells = [square(x, y, rng.choice([1, 1, 2])) for x in range(1, size, 2) for y in range(1, size, 2)]
        rng.shuffle(cells)
        turned = [[c[0], [c[1][0], c[0][1] + 1], c[2], c[0]] for c in cells]
        yield "lattice of holes", "Polygon", [square(0, 0, size + 1)] + rng.sample(cells + turned, rng.randint(1, min(6, len(cells))))
    for _ in range(1000):
        size = rng.choice([6, 10, 30, 1_000, 10**6])
        parts = []
        for _ in range(rng.randint(2, 5)):
            x, y, side = rng.randrange(size), rng.randrange(size), rng.randint(1, max(size // 2, 1))
            part = [square(x, y, side)]
            if side > 2 and rng.random() < 0.5:
                part.append(square(x + rng.randrange(2), y + 1, side - 2))
            if rng.random() < 0.4:
                part = [closed(points(rng, rng.randint(3, 6), max(side, 3), x, y))]
            parts.append(part)
        yield "several parts", "MultiPolygon", parts
    for _ in range(200):
        yield "spaghetti", "Polygon", [closed(points(rng, rng.randint(20, 120), rng.choice([20, 200, 10_000, 10**6, 36 * 10**10])))]


class Binary:
    def __init__(self, path):
        self.path = path

    def ask(self, requests):
        text = "".join(json.dumps(request) + "\n" for request in requests)
        done = subprocess.run([self.path], input=text, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]


def linework_length(kind, coordinates):
    rings = coordinates if kind == "Polygon" else [ring for part in coordinates for ring in part]
    return sum(math.dist(a, b) for ring in rings for a, b in zip(ring, ring[1:]))


def polygonal(geometry):
    return geometry if geometry.area > 0 else shapely.MultiPolygon()


class Row:
    def __init__(self):
        self.cases = self.valid = self.same = self.near = self.empty = 0
        self.shift = self.worst = 0.0


def compare(binary, failures):
    cases = list(generate())
    checks = binary.ask({"op": "check", "type": t, "coordinates": c} for _, t, c in cases)
    repairs = binary.ask({"op": "repair", "type": t, "coordinates": c} for _, t, c in cases)
    again = binary.ask({"op": "repair", "type": r["type"], "coordinates": r["coordinates"]} for r in repairs if "error" not in r)
    for answer in again:
        if answer.get("changed") is not False:
            failures.append(f"a repair of a repair changed it: {answer}")
    rows = collections.defaultdict(Row)
    for (name, kind, coordinates), checked, repaired in zip(cases, checks, repairs):
        row = rows[name]
        row.cases += 1
        source = {"type": kind, "coordinates": coordinates}
        given = to_shape(source)
        valid = bool(shapely.is_valid(given))
        row.valid += valid
        if checked["valid"] != valid or not checked["complete"]:
            failures.append(f"validity: {checked}, GEOS {valid} ({shapely.is_valid_reason(given)}): {json.dumps(source)}")
        expected = polygonal(shapely.make_valid(given, method="structure", keep_collapsed=False))
        allowed = linework_length(kind, coordinates)
        if "error" in repaired:
            if repaired["error"] != "geojson_empty" or expected.area > allowed:
                failures.append(f"repair: {repaired}, GEOS area {expected.area}: {json.dumps(source)}")
            row.empty += 1
            continue
        result = to_shape(repaired)
        if not shapely.is_valid(result):
            failures.append(f"repair is not valid: {shapely.is_valid_reason(result)}: {json.dumps(source)}")
            continue
        if repaired["changed"] == valid:
            failures.append(f"changed={repaired['changed']} where valid={valid}: {json.dumps(source)}")
        apart = shapely.symmetric_difference(result, expected).area
        row.same += apart == 0
        row.near += apart > 0
        row.shift = max(row.shift, repaired["shift_max"])
        row.worst = max(row.worst, apart / allowed)
        if apart > allowed:
            failures.append(f"repair is {apart / allowed:.3} steps off: {json.dumps(source)}")
    return rows


NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def scaled(wkt):
    """The text with integer coordinates, or the reason why there are none."""
    if "EMPTY" in wkt:
        return None, "has an empty geometry"
    if re.search(r"\b(nan|inf)", wkt, re.IGNORECASE):
        return None, "has a coordinate that is not finite"
    if re.search(r"\b(ZM?|M)\b", wkt):
        return None, "has z or m"
    numbers = [Decimal(text) for text in NUMBER.findall(wkt)]
    places = max(max(0, -number.normalize().as_tuple().exponent) for number in numbers)
    if max(abs(number) for number in numbers) * 10**places >= 2**50:
        return None, "has no exact integer form below 2^50"
    return NUMBER.sub(lambda match: str(int(Decimal(match[0]) * 10**places)), wkt), None


def flat(geometry):
    if geometry.geom_type == "GeometryCollection":
        return [one for member in geometry.geoms for one in flat(member)]
    if geometry.geom_type == "LinearRing":
        raise ValueError("is a LinearRing")
    return [json.loads(shapely.to_geojson(geometry))]


def members(wkt):
    text, reason = scaled(wkt)
    if reason:
        raise ValueError(reason)
    try:
        geometry = shapely.from_wkt(text)
    except shapely.errors.GEOSException:
        raise ValueError("cannot be read by GEOS") from None
    integers = json.loads(json.dumps(flat(geometry)), parse_float=lambda number: int(Decimal(number)))
    return integers


def corpus(binary, directory, failures):
    """Answers compared, and counts of the cases left out."""
    left_out = collections.Counter()
    compared = 0
    for line in (pathlib.Path(directory) / "jts" / "isvalid-922.tsv").read_text().splitlines():
        source, name, wkt, expected = line.split("\t")
        try:
            geometries = members(wkt)
        except ValueError as reason:
            left_out[str(reason)] += 1
            continue
        answers = binary.ask({"op": "check", **geometry} for geometry in geometries)
        compared += 1
        if all(answer["valid"] for answer in answers) != (expected == "true"):
            failures.append(f"JTS {source} {name!r}: {answers}, expected {expected}: {wkt}")
    if compared != CORPUS_COMPARED or dict(left_out) != CORPUS_LEFT_OUT:
        failures.append(f"JTS corpus counts: {compared} compared, left out {dict(left_out)}")
    return compared, left_out


def summary(rows):
    lines = [
        "| class | cases | valid (both say so) | same region | within a step | empty | largest shift | largest difference |",
        "|---|---|---|---|---|---|---|---|",
    ]
    total = Row()
    for name, row in rows.items():
        lines.append(table_line(name, row))
        for field in ("cases", "valid", "same", "near", "empty"):
            setattr(total, field, getattr(total, field) + getattr(row, field))
        total.shift, total.worst = max(total.shift, row.shift), max(total.worst, row.worst)
    lines.append(table_line("all", total))
    lines.append("")
    lines.append(f"JTS test suite: {CORPUS_COMPARED} of {CORPUS_COMPARED + sum(CORPUS_LEFT_OUT.values())} cases compared, all equal.")
    lines.append("Left out: " + "; ".join(f"{count} where the case {reason}" for reason, count in sorted(CORPUS_LEFT_OUT.items())) + ".")
    return "\n".join(lines)


def table_line(name, row):
    return f"| {name} | {row.cases} | {row.valid} | {row.same} | {row.near} | {row.empty} | {row.shift:.2f} | {row.worst:.2f} |"


def documented(path, text, write, failures):
    before, _, rest = path.read_text().partition(MARKS[0])
    old, _, after = rest.partition(MARKS[1])
    new = f"\n{text}\n"
    if write:
        path.write_text(before + MARKS[0] + new + MARKS[1] + after)
    elif old != new:
        failures.append(f"{path} is out of date; run with --write")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--corpora")
    parser.add_argument("--docs", type=pathlib.Path, default=pathlib.Path(__file__).parents[2] / "docs" / "repair.md")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    binary = Binary(arguments.binary)
    failures = []
    text = summary(compare(binary, failures))
    print(text)
    if arguments.corpora:
        compared, left_out = corpus(binary, arguments.corpora, failures)
        print(f"JTS corpus: {compared} compared, {sum(left_out.values())} left out")
    else:
        print("JTS corpus: LEFT OUT, no --corpora given; its counts above are the pinned ones")
    documented(arguments.docs, text, arguments.write, failures)
    for failure in failures[:20]:
        print("FAIL", failure[:1500], file=sys.stderr)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
