#!/usr/bin/env python3
"""Generates the coordinate system table of the g1 key from the EPSG dataset that pyproj carries.

    python tools/crs_table.py            compares the committed files with what the dataset says, fails if they differ
    python tools/crs_table.py --write    writes them

Writes crates/geonce-key/src/crs/table.rs and crates/geonce-key/tests/data/crs_areas.csv. The table is frozen with g1:
a newer dataset that changes a row here is a reason for a new key version, not for a new table. Adding rows is allowed.
UTM and MGA zones are not rows: src/crs/zones.rs computes them.
"""

import re
import sys
from fractions import Fraction
from pathlib import Path

from pyproj import CRS
from pyproj.crs import CoordinateOperation
from pyproj.database import query_crs_info
from pyproj.enums import PJType

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "crates/geonce-key/src/crs/table.rs"
AREAS = ROOT / "crates/geonce-key/tests/data/crs_areas.csv"

# Geographic system -> (Rust name, the one EPSG operation to WGS 84 that g1 uses).
DATUMS = {
    4149: ("CH1903", 1766),
    4150: ("CH1903_PLUS", 1676),
    4167: ("NZGD2000", 1565),
    4171: ("RGF93", 1671),
    4173: ("IRENET95", 1678),
    4180: ("EST97", 1649),
    4258: ("ETRS89", 1149),
    4269: ("NAD83", 1188),
    4277: ("OSGB36", 1314),
    4283: ("GDA94", 1150),
    4289: ("AMERSFOORT", 4833),
    4619: ("SWEREF99", 1879),
    4659: ("ISN93", 1952),
    4661: ("LKS92", 1958),
    4669: ("LKS94", 1283),
    4761: ("HTRS96", 15967),
    4765: ("SLOVENIA1996", 15976),
    7844: ("GDA2020", 8450),
    9702: ("ETRF2000_PL", 9772),
}
ELLIPSOIDS = {"GRS 1980": "GRS80", "Bessel 1841": "BESSEL", "Airy 1830": "AIRY"}

GEOGRAPHIC = [4167, 4171, 4258, 4269, 4283, 4619, 7844]
PROJECTED = [
    2056, 2154, 2157, 2180, 2193, 3006, 3034, 3035, 3057, 3059, 3067, 3301, 3346, 3577, 3763, 3765, 3794, 3812,
    *range(3942, 3951), 5070, 21781, 27700, 28992,
]
ZONES = [
    *range(25828, 25839), *range(26901, 26924), *range(28348, 28359), *range(7846, 7860),
    *range(32601, 32661), *range(32701, 32761),
]
OTHER = [3857, 4326]


def state_planes():
    """All state plane zones on NAD83 (1986), except Alaska 1 (Hotine oblique Mercator, one zone in the world)."""
    for info in query_crs_info(auth_name="EPSG", pj_types=[PJType.PROJECTED_CRS]):
        if info.name.startswith("NAD83 / "):
            conversion = CRS(int(info.code)).coordinate_operation
            if conversion.name.startswith("SPCS83") and "Hotine" not in conversion.method_name:
                yield int(info.code)


def factor(unit):
    """Metres per unit, exactly."""
    name = unit if isinstance(unit, str) else unit["name"]
    return {"metre": Fraction(1), "US survey foot": Fraction(1200, 3937), "foot": Fraction("0.3048")}[name]


def angle(value):
    """The dataset prints 15 digits; where that is a whole number of micro-arcseconds, the exact quotient is meant."""
    micro = round(Fraction(repr(value)) * 3600 * 10**6)
    exact = float(Fraction(micro, 3600 * 10**6))
    return exact if abs(exact - value) < 1e-12 else value


def number(value):
    """Shortest digits, grouped as Rust likes them."""
    whole, dot, rest = repr(float(value)).partition(".")
    assert "e" not in rest
    sign, whole = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
    groups = lambda digits: re.sub(r"(\d{3})(?=\d)", r"\1_", digits)
    front = groups(whole[::-1])[::-1] if len(whole) > 3 else whole
    return sign + front + dot + (groups(rest) if len(rest) > 4 or "_" in front else rest)


def conversion(crs):
    """The projection as a Rust expression."""
    step = crs.to_json_dict()["conversion"]
    got = {}
    for p in step["parameters"]:
        length = "asting" in p["name"] or "orthing" in p["name"]
        if length:
            value = float(Fraction(repr(p["value"])) * factor(p["unit"]))
        else:
            value = angle(p["value"]) if p["unit"] == "degree" else p["value"]
        got[p["name"]] = value
    take = lambda *names: ", ".join(number(got[n]) for n in names)
    origin = ("Latitude of natural origin", "Longitude of natural origin")
    false = ("False easting", "False northing")
    method = step["method"]["name"]
    if method == "Transverse Mercator":
        return f"tm({take(*origin, 'Scale factor at natural origin', *false)})"
    if method == "Lambert Azimuthal Equal Area":
        return f"laea({take(*origin, *false)})"
    if method == "Oblique Stereographic":
        return f"sterea({take(*origin, 'Scale factor at natural origin', *false)})"
    if method in ("Lambert Conic Conformal (2SP)", "Albers Equal Area"):
        name = "lcc" if method.startswith("Lambert") else "albers"
        return f"{name}(" + take(
            "Latitude of false origin", "Longitude of false origin", "Latitude of 1st standard parallel",
            "Latitude of 2nd standard parallel", "Easting at false origin", "Northing at false origin") + ")"
    if method == "Hotine Oblique Mercator (variant B)":
        assert got["Azimuth at projection centre"] == got["Angle from Rectified to Skew Grid"] == 90
        assert got["Scale factor at projection centre"] == 1
        return "swiss(" + take("Latitude of projection centre", "Longitude of projection centre",
                               "Easting at projection centre", "Northing at projection centre") + ")"
    raise SystemExit(f"no projection for {method}")


def shift(operation):
    """Translation, rotation and scale as towgs84 writes them (position vector), or None where all are zero."""
    arcsecond = 4.848136811095359935899141e-06
    got = []
    for p in operation["parameters"]:
        value, unit = p["value"], p["unit"]
        if isinstance(unit, dict) and unit["type"] == "AngularUnit":
            value = value if unit["name"] == "arc-second" else float(f"{value * unit['conversion_factor'] / arcsecond:.15g}")
        got.append(value)
    if not any(got):
        return "None"
    if "Coordinate Frame" in operation["method"]["name"]:
        got[3:6] = [-v for v in got[3:6]]
    got += [0.0] * (7 - len(got))
    return "Some([" + ", ".join(number(v) for v in got) + "])"


def datums():
    for geographic, (name, code) in DATUMS.items():
        crs = CRS(geographic)
        op = CoordinateOperation.from_epsg(code).to_json_dict()
        assert op["source_crs"]["id"]["code"] == geographic and op["target_crs"]["id"]["code"] == 4326
        yield (f"static {name}: Datum = Datum {{ ellipsoid: &{ELLIPSOIDS[crs.ellipsoid.name]}, "
               f"operation: \"EPSG:{code} {op['name']}\", accuracy_m: {number(op['accuracy'])}, shift: {shift(op)} }};")


def row(code):
    crs = CRS(code)
    datum = DATUMS[crs.geodetic_crs.to_epsg()][0]
    if crs.is_geographic:
        return f'row({code}, "{crs.name}", &{datum}, Coordinates::LonLat, METRE),'
    unit = {1: "METRE", Fraction(1200, 3937): "FOOT_US", Fraction("0.3048"): "FOOT"}
    foot = unit[factor(crs.to_json_dict()["coordinate_system"]["axis"][0]["unit"])]
    return f'row({code}, "{crs.name}", &{datum}, {conversion(crs)}, {foot}),'


def with_height(codes):
    """Systems with a height whose horizontal part is in the table: refused, and the hint names the part."""
    known = set(codes)
    found = [(4937, 4258), (4939, 4283), (4959, 4167), (4965, 4171), (4977, 4619), (4979, 4326), (7843, 7844)]
    for info in query_crs_info(auth_name="EPSG", pj_types=[PJType.COMPOUND_CRS], allow_deprecated=True):
        part = CRS(int(info.code)).sub_crs_list[0].to_epsg()
        if part in known:
            found.append((int(info.code), part))
    return sorted(found)


def packed(pairs, per_line=8):
    for at in range(0, len(pairs), per_line):
        yield "    " + " ".join(f"({a}, {b})," for a, b in pairs[at:at + per_line])


def area(code):
    a = CRS(code).area_of_use
    return f"{code},{a.west},{a.south},{a.east},{a.north}"


HEAD = """\
//! The rows of the `g1` table: for each code its projection and its one fixed operation to WGS 84.
//!
//! Generated by `tools/crs_table.py` from EPSG dataset parameters; frozen with `g1`, rows may only be added.
//! Angles in degrees, lengths in metres (feet are converted exactly), shifts as `towgs84` writes them.

use super::datum::{AIRY, BESSEL, Datum, GRS80};
use super::row::{Coordinates, FOOT, FOOT_US, METRE, Row, albers, laea, lcc, row, sterea, swiss, tm};
"""


def main():
    rows = sorted([*GEOGRAPHIC, *PROJECTED, *state_planes()])
    codes = sorted([*rows, *ZONES, *OTHER])
    lines = [HEAD, *["pub(super) " + d for d in datums()], "", "/// In ascending order of codes.",
             "pub(super) static ROWS: &[Row] = &[", *["    " + row(c) for c in rows], "];", "",
             "/// Systems with a height, and the system of their horizontal part; in ascending order.",
             "pub(super) static WITH_HEIGHT: &[(u32, u32)] = &[",
             *packed(with_height(codes)), "];", ""]
    table = "\n".join(lines)
    outputs = {TABLE: table, AREAS: "code,west,south,east,north\n" + "".join(area(c) + "\n" for c in codes)}
    if "--write" in sys.argv[1:]:
        for path, text in outputs.items():
            path.write_text(text)
    stale = [str(p.relative_to(ROOT)) for p, text in outputs.items() if not p.exists() or p.read_text() != text]
    if stale:
        raise SystemExit(f"stale: {', '.join(stale)}; run tools/crs_table.py --write and read the difference")
    print(f"{len(codes)} codes, {len(rows)} of them rows")


if __name__ == "__main__":
    main()
