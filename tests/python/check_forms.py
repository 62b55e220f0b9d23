"""Reads what shapely (GEOS) writes and compares what geonce writes back, byte for byte.

Usage: check_forms.py <compiled example "forms"> [count] [seed]
"""

import random
import subprocess
import sys

import shapely
from shapely import geometry as g

CURVES = ["CIRCULARSTRING (0 0, 1 1, 2 0)", "CURVEPOLYGON ((0 0, 1 1, 2 0, 0 0))", "TRIANGLE ((0 0, 1 0, 0 1, 0 0))"]
REFUSED = [
    ("wkt", "POINT EMPTY", "geojson_empty"),
    ("wkt", "POINT M (1 2 3)", "geojson_measure"),
    ("wkt", "POINT (1 2) junk", "wkt_syntax"),
    ("wkt", "GEOMETRYCOLLECTION (POINT (1 2), POINT EMPTY)", "geojson_empty"),
    *[("wkt", curve, "geojson_type") for curve in CURVES],
    *[("hex", shapely.to_wkb(shapely.from_wkt(text), hex=True), code) for text, code in [
        ("POINT EMPTY", "geojson_empty"),
        ("POLYGON EMPTY", "geojson_empty"),
        ("MULTIPOINT ((1 2), EMPTY)", "geojson_empty"),
        ("POINT M (1 2 3)", "geojson_measure"),
        ("LINESTRING ZM (1 2 3 4, 5 6 7 8)", "geojson_measure"),
        ("GEOMETRYCOLLECTION (POINT (1 2), POINT Z (1 2 3))", "geojson_dimensions"),
    ]],
]


def number(rnd):
    kind = rnd.random()
    if kind < 0.5:
        return rnd.uniform(-180, 180)
    if kind < 0.8:
        return round(rnd.uniform(-180, 180), rnd.randint(0, 9))
    if kind < 0.9:
        return float(rnd.randint(-10, 10))
    return rnd.uniform(-1, 1) * 10.0 ** rnd.randint(-300, 300)


def positions(rnd, has_z, low, high):
    return [tuple(number(rnd) for _ in range(3 if has_z else 2)) for _ in range(rnd.randint(low, high))]


def polygon(rnd, has_z):
    rings = [positions(rnd, has_z, 3, 8) for _ in range(rnd.randint(1, 3))]
    return g.Polygon(rings[0], rings[1:])


def draw(rnd, has_z, depth=0):
    many = range(rnd.randint(1, 4))
    kind = rnd.choice(["P", "L", "A", "MP", "ML", "MA", "C", "C"] if depth < 3 else ["P", "L", "A"])
    if kind == "P":
        return g.Point(positions(rnd, has_z, 1, 1)[0])
    if kind == "L":
        return g.LineString(positions(rnd, has_z, 2, 9))
    if kind == "A":
        return polygon(rnd, has_z)
    if kind == "MP":
        return g.MultiPoint(positions(rnd, has_z, 1, 6))
    if kind == "ML":
        return g.MultiLineString([positions(rnd, has_z, 2, 5) for _ in many])
    if kind == "MA":
        return g.MultiPolygon([polygon(rnd, has_z) for _ in many])
    return g.GeometryCollection([draw(rnd, has_z, depth + 1) for _ in many])


def members(geometry):
    if geometry.geom_type != "GeometryCollection":
        return [geometry]
    return [leaf for member in geometry.geoms for leaf in members(member)]


def flat(geometry):
    """geonce flattens nested collections; shapely keeps them."""
    return g.GeometryCollection(members(geometry)) if geometry.geom_type == "GeometryCollection" else geometry


def exact_wkt(geometry):
    """Shortest digits that round-trip; GEOS stops at 16 significant ones, which moves some values by an ulp."""
    name = geometry.geom_type.upper()
    if name == "GEOMETRYCOLLECTION":
        return f"{name}({', '.join(exact_wkt(member) for member in geometry.geoms)})"
    coordinates = g.mapping(geometry)["coordinates"]
    return name + nested([coordinates] if name == "POINT" else coordinates)


def nested(coordinates):
    if isinstance(coordinates[0], float):
        return " ".join(map(repr, coordinates))
    return f"({','.join(nested(inner) for inner in coordinates)})"


def cases(geometry, srid):
    """Yields (form, text, SRID that must come back, geometry that must come back)."""
    declared = shapely.set_srid(geometry, srid)
    for order in (0, 1):
        plain = shapely.to_wkb(geometry, hex=True, byte_order=order, flavor="extended")
        iso = shapely.to_wkb(geometry, hex=True, byte_order=order, flavor="iso")
        with_srid = shapely.to_wkb(declared, hex=True, byte_order=order, include_srid=True, flavor="extended")
        yield "hex", plain, 0, geometry
        yield "hex", iso.lower(), 0, geometry
        yield "hex", "\\x" + with_srid, srid, geometry
    exact = exact_wkt(geometry)
    yield "wkt", exact, 0, geometry
    yield "wkt", f"srid={srid};{exact.lower()}", srid, geometry
    for digits in (-1, 5):
        text = shapely.to_wkt(geometry, rounding_precision=digits)
        yield "wkt", text, 0, shapely.from_wkt(text)


def expected(geometry, srid):
    whole = shapely.set_srid(flat(geometry), srid)
    return "ok " + shapely.to_wkb(whole, hex=True, byte_order=1, include_srid=srid != 0, flavor="extended").lower()


def main():
    program = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 7
    rnd = random.Random(seed)
    lines, answers = [], []
    for _ in range(count):
        geometry = draw(rnd, has_z=rnd.random() < 0.5)
        for form, text, srid, back in cases(geometry, rnd.choice([4326, 3857, 25832, 900913])):
            lines.append(f"{form} {text}")
            answers.append(expected(back, srid))
    for form, text, code in REFUSED:
        lines.append(f"{form} {text}")
        answers.append(f"err {code}")
    run = subprocess.run([program], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    got = run.stdout.splitlines()
    if len(got) != len(answers):
        sys.exit(f"{len(got)} answers to {len(answers)} lines")
    wrong = [triple for triple in zip(lines, answers, got) if triple[1] != triple[2]]
    for line, want, have in wrong[:5]:
        print(f"given    {line[:300]}\nexpected {want[:300]}\ngot      {have[:300]}\n", file=sys.stderr)
    if wrong:
        sys.exit(f"{len(wrong)} of {len(lines)} lines differ (seed {seed})")
    print(f"{count} geometries, {len(lines)} lines: all as shapely {shapely.__version__} writes them")


if __name__ == "__main__":
    main()
