#!/usr/bin/env python3
"""Holds geonce's projections against PROJ, code by code.

    python tests/python/check_crs.py PATH/TO/crs_convert            fails if a limit is exceeded or docs/crs.md is stale
    python tests/python/check_crs.py PATH/TO/crs_convert --write    also rewrites the table in docs/crs.md

Three oracles. PROJ running the operation that g1 fixes (a pipeline written out here from the EPSG dataset) must agree.
Where that operation is null, PROJ's own reading of the projection must agree too, which proves the parameters. PROJ's own
choice of operation (`Transformer`) is only reported, because PROJ may choose by place. The definitions that go into files
are those of PROJ, letter by letter, without the axes.
"""

import random
import re
import subprocess
import sys
import warnings
from pathlib import Path

from pyproj import CRS, Geod, Transformer, proj_version_str
from pyproj.crs import CoordinateOperation
from pyproj.database import get_database_metadata

warnings.simplefilter("ignore")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import crs_table  # noqa: E402

DOC = ROOT / "docs/crs.md"
POINTS = 250
LIMIT_M = 1e-6
# PROJ before 9.7 inverts the authalic latitude by a short series and misses its own forward projection by 1.5 mm.
SHORT_SERIES = {"Lambert Azimuthal Equal Area"}

VERSION = f"With PROJ {proj_version_str} and EPSG dataset {get_database_metadata('EPSG.VERSION')}:"

GROUPS = [
    ("3857", [3857]),
    ("32601–32660, 32701–32760", [*range(32601, 32661), *range(32701, 32761)]),
    ("25828–25838", range(25828, 25839)),
    ("26901–26923", range(26901, 26924)),
    ("28348–28358, 7846–7859", [*range(28348, 28359), *range(7846, 7860)]),
    ("2157, 2180, 2193, 3006, 3059, 3067, 3346, 3763, 3765, 3794",
     [2157, 2180, 2193, 3006, 3059, 3067, 3346, 3763, 3765, 3794]),
    ("2154, 3034, 3057, 3301, 3812, 3942–3950", [2154, 3034, 3057, 3301, 3812, *range(3942, 3951)]),
    ("3035", [3035]),
    ("3577, 5070", [3577, 5070]),
    ("2056, 21781", [2056, 21781]),
    ("28992", [28992]),
    ("27700", [27700]),
    ("state planes, metres", None),
    ("state planes, feet", None),
]


def groups():
    planes = sorted(crs_table.state_planes())
    metres = [c for c in planes if CRS(c).axis_info[0].unit_name == "metre"]
    for name, codes in GROUPS:
        if name.startswith("state planes"):
            codes = metres if name.endswith("metres") else [c for c in planes if c not in metres]
        yield name, list(codes)


def pipeline(code):
    """The fixed operation as a PROJ pipeline from the system's coordinates to degrees, x first."""
    crs = CRS(code)
    if code == 3857:
        return "+proj=pipeline +step +inv +proj=webmerc +ellps=WGS84 +step +proj=unitconvert +xy_in=rad +xy_out=deg"
    ellipsoid = {"WGS 84": "WGS84", "GRS 1980": "GRS80", "Bessel 1841": "bessel", "Airy 1830": "airy"}[crs.ellipsoid.name]
    step = crs.to_json_dict()["conversion"]
    value = {}
    for p in step["parameters"]:
        v = p["value"]
        if "asting" in p["name"] or "orthing" in p["name"]:
            v = float(crs_table.Fraction(repr(v)) * crs_table.factor(p["unit"]))
        elif p["unit"] == "degree":
            v = crs_table.angle(v)
        value[p["name"]] = v
    proj, keys = {
        "Transverse Mercator": ("tmerc", ["lat_0", "lon_0", "k_0", "x_0", "y_0"]),
        "Lambert Conic Conformal (2SP)": ("lcc", ["lat_0", "lon_0", "lat_1", "lat_2", "x_0", "y_0"]),
        "Albers Equal Area": ("aea", ["lat_0", "lon_0", "lat_1", "lat_2", "x_0", "y_0"]),
        "Lambert Azimuthal Equal Area": ("laea", ["lat_0", "lon_0", "x_0", "y_0"]),
        "Oblique Stereographic": ("sterea", ["lat_0", "lon_0", "k_0", "x_0", "y_0"]),
        "Hotine Oblique Mercator (variant B)": ("somerc", ["lat_0", "lon_0", "alpha", "gamma", "k_0", "x_0", "y_0"]),
    }[step["method"]["name"]]
    shown = {k: v for k, v in zip(keys, value.values(), strict=True) if k not in ("alpha", "gamma")}
    text = "+proj=pipeline"
    unit = crs.axis_info[0].unit_name
    if unit != "metre":
        text += f" +step +proj=unitconvert +xy_in={'us-ft' if unit == 'US survey foot' else 'ft'} +xy_out=m"
    text += f" +step +inv +proj={proj} " + " ".join(f"+{k}={v!r}" for k, v in shown.items()) + f" +ellps={ellipsoid}"
    shift = datum_shift(crs)
    if shift:
        x, y, z, rx, ry, rz, s = shift
        text += (f" +step +proj=push +v_3 +step +proj=cart +ellps={ellipsoid} +step +proj=helmert +x={x} +y={y} +z={z}"
                 f" +rx={rx} +ry={ry} +rz={rz} +s={s} +convention=position_vector"
                 " +step +inv +proj=cart +ellps=WGS84 +step +proj=pop +v_3")
    return text + " +step +proj=unitconvert +xy_in=rad +xy_out=deg"


def datum_shift(crs):
    base = crs.geodetic_crs.to_epsg()
    if base == 4326:
        return None
    text = crs_table.shift(CoordinateOperation.from_epsg(crs_table.DATUMS[base][1]).to_json_dict())
    return None if text == "None" else [float(v) for v in re.findall(r"-?[\d.]+", text.replace("_", ""))]


def points(code):
    """Positions in the area of use: its corners and random ones, always the same."""
    area = CRS(code).area_of_use
    east = area.east if area.east > area.west else 180.0
    rng = random.Random(code)
    corners = [(area.west, area.south), (east, area.south), (area.west, area.north), (east, area.north)]
    return corners + [(rng.uniform(area.west, east), rng.uniform(area.south, area.north)) for _ in range(POINTS - 4)]


def convert(binary, requests):
    lines = "".join(f"{code} {direction} {x!r} {y!r}\n" for code, direction, x, y in requests)
    out = subprocess.run([binary], input=lines, text=True, capture_output=True, check=True).stdout.splitlines()
    assert len(out) == len(requests)
    return [tuple(map(float, line.split())) if line != "none" else (float("nan"),) * 2 for line in out]


GEOD = Geod(ellps="WGS84")


def ground(a, b):
    """Metres between lists of positions; NaN counts as infinitely far."""
    worst = 0.0
    for (lon1, lat1), (lon2, lat2) in zip(a, b, strict=True):
        metres = GEOD.inv(lon1, lat1, lon2, lat2)[2]
        worst = max(worst, metres if metres == metres and metres != float("inf") else float("inf"))
    return worst


def same_key(a, b):
    """Whether two positions agree to 7 decimals. PROJ wraps longitudes, we do not: a whole turn is not a difference."""
    turn = round(a[0], 7) - round(b[0], 7)
    return (turn == 0 or abs(abs(turn) - 360) < 1e-9) and round(a[1], 7) == round(b[1], 7)


def check(binary, code):
    """Errors in metres of one code: to WGS 84, from it, against PROJ's own choice; and 7-decimal positions that differ."""
    crs = CRS(code)
    fixed = Transformer.from_pipeline(pipeline(code))
    chosen = Transformer.from_crs(code, 4326, always_xy=True)
    degrees = points(code)
    unit = crs.axis_info[0].unit_conversion_factor

    ours_xy = convert(binary, [(code, "from", *p) for p in degrees])
    proj_xy = list(zip(*fixed.transform(*zip(*degrees), direction="INVERSE"), strict=True))
    exact_inverse = datum_shift(crs) is not None
    if exact_inverse:
        # PROJ runs the seven parameters backwards with height zero, which is not quite the inverse; ours is. So
        # PROJ's own way to WGS 84 has to bring our coordinates back.
        back = list(zip(*fixed.transform(*zip(*ours_xy)), strict=True))
        from_m = ground(back, degrees)
    else:
        from_m = max(max(abs(a - b), abs(c - d)) * unit for (a, c), (b, d) in zip(ours_xy, proj_xy, strict=True))

    ours = convert(binary, [(code, "to", *p) for p in proj_xy])
    theirs = list(zip(*fixed.transform(*zip(*proj_xy)), strict=True))
    default = list(zip(*chosen.transform(*zip(*proj_xy)), strict=True))
    if crs.coordinate_operation.method_name in SHORT_SERIES:
        theirs = degrees
    to_m = ground(ours, theirs)
    if not exact_inverse and theirs is not degrees:
        projection = Transformer.from_crs(crs, crs.geodetic_crs, always_xy=True)
        to_m = max(to_m, ground(ours, list(zip(*projection.transform(*zip(*proj_xy)), strict=True))))
    differ = sum(not same_key(a, b) for a, b in zip(ours, theirs, strict=True))
    return to_m, from_m, ground(ours, default), differ, len(degrees)


def bucket(metres):
    """Rounded up, so that the document does not change with the last bit."""
    for limit in ("1e-7", "1e-6", "0.01", "2", "200"):
        if metres < float(limit):
            return f"< {limit}"
    return "more"


def table(binary):
    """The document's table, and the codes over the limit."""
    lines = [VERSION, "", "| codes | to WGS 84, m | from WGS 84, m | PROJ's own choice, m | 7-decimal positions that differ |",
             "|---|---|---|---|---|"]
    wrong = []
    for name, codes in groups():
        results = {code: check(binary, code) for code in codes}
        wrong += [(code, r) for code, r in results.items() if not (r[0] < LIMIT_M and r[1] < LIMIT_M)]
        to_m, from_m, default_m = (max(r[i] for r in results.values()) for i in range(3))
        differ, total = (sum(r[i] for r in results.values()) for i in (3, 4))
        lines.append(f"| {name} | {bucket(to_m)} | {bucket(from_m)} | {bucket(default_m)} | {differ} of {total:,} |")
        print(f"{name}: to {to_m:.2e} m, from {from_m:.2e} m, PROJ's choice {default_m:.2e} m, {differ} of {total} differ")
    return "\n".join(lines), wrong


def wrong_definitions(binary):
    """Codes whose definition is not PROJ's. A system that EPSG has withdrawn since is marked there, not here."""
    codes = [*crs_table.GEOGRAPHIC, *crs_table.PROJECTED, *crs_table.ZONES, *crs_table.OTHER, *crs_table.state_planes()]
    lines = "".join(f"{code} wkt 0 0\n" for code in codes)
    ours = subprocess.run([binary], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    for code, text in zip(codes, ours, strict=True):
        theirs = re.sub(r",AXIS\[[^]]*]", "", CRS(code).to_wkt("WKT1_GDAL")).replace(" (deprecated)", "")
        if text != theirs:
            yield code, text
    print(f"{len(codes)} definitions compared")


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    text, wrong = table(sys.argv[1])
    page = DOC.read_text()
    fresh = re.sub(r"(<!-- generated -->\n).*(\n<!-- /generated -->)", lambda m: m[1] + text + m[2], page, flags=re.S)
    if "--write" in sys.argv[2:]:
        DOC.write_text(fresh)
        page = fresh
    for code, result in wrong:
        print(f"EPSG:{code} is over {LIMIT_M} m: {result}", file=sys.stderr)
    definitions = list(wrong_definitions(sys.argv[1]))
    for code, text in definitions:
        print(f"EPSG:{code} is defined otherwise by PROJ: {text}", file=sys.stderr)
    # Another PROJ makes other choices of its own; then only the limits count.
    stale = VERSION in page and page != fresh
    if stale:
        print("docs/crs.md is stale: run this with --write", file=sys.stderr)
    if wrong or stale or definitions:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
