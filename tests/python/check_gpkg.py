#!/usr/bin/env python3
"""What GDAL makes of the GeoPackages we write, and what its edits do to them.

    python tests/python/check_gpkg.py PATH/TO/write_gpkg [--keep FOLDER]

Needs pyogrio and shapely (requirements.txt) and Debian's gdal-bin (ogrinfo, ogr2ogr). validate_gpkg, which comes with
Debian's python3-gdal, runs where it is found; the structure is checked here in any case.
"""

import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy
import pyogrio
import shapely

GUARDS = ["gpkg_geonce_applied", "gpkg_geonce_entity", "gpkg_geonce_layer", "gpkg_geonce_column"]
VALIDATE = ["/usr/bin/python3", "-c", "import sys; from osgeo_utils.samples import validate_gpkg as v; sys.exit(v.main(sys.argv))"]


def feature(n, geometry, **members):
    properties = {"name": f"zone {n} ä\"'", "n": n, "share": n / 8, "open": n % 2 == 0, "tags": ["a", {"b": n}]}
    return {"type": "Feature", "id": n, "geometry": geometry, "properties": properties | members}


def geometries(seed=7):
    """Two of every type, with and without a third coordinate."""
    r = random.Random(seed)

    def at(x, y, z):
        return [x, y, round(r.uniform(0, 99), 2)] if z else [x, y]

    for z in (False, True):
        for _ in range(2):
            x, y = round(r.uniform(-170, 160), 7), round(r.uniform(-80, 70), 7)
            line = [at(x, y, z), at(x + 1, y + 2, z), at(x + 3, y, z)]
            ring = [at(x, y, z), at(x, y + 5, z), at(x + 5, y + 5, z), at(x + 5, y, z)]
            hole = [at(x + 1, y + 1, z), at(x + 2, y + 1, z), at(x + 2, y + 2, z)]
            rings = [ring + ring[:1], hole + hole[:1]]
            yield {"type": "Point", "coordinates": line[0]}
            yield {"type": "LineString", "coordinates": line}
            yield {"type": "Polygon", "coordinates": rings}
            yield {"type": "MultiPoint", "coordinates": line}
            yield {"type": "MultiLineString", "coordinates": [line, ring]}
            yield {"type": "MultiPolygon", "coordinates": [rings]}
            yield {"type": "GeometryCollection", "geometries": [
                {"type": "Point", "coordinates": line[0]}, {"type": "LineString", "coordinates": line}]}


def write(binary, path, features, *arguments):
    lines = "".join(json.dumps(f) + "\n" for f in features)
    done = subprocess.run([binary, path, "zones", *arguments], input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def gdal(*command, update=False):
    """Runs a command of GDAL; a word on stderr is a failure."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr.strip(), (command, done.stderr, done.stdout[-400:])
    assert "Warning" not in done.stdout and "ERROR" not in done.stdout, done.stdout
    return done.stdout


def bounds(blob):
    return shapely.from_wkb(wkb(blob)).bounds


def wkb(blob):
    assert blob[:3] == b"GP\0" and blob[3] & 1, blob[:8]
    return blob[8 + [0, 32, 48, 48, 64][(blob[3] >> 1) & 7]:]


def check_structure(path, layer="zones"):
    """Clauses 1.1 and 2.1 of the standard, and the R-tree beside the geometries."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    one = lambda sql, *p: db.execute(sql, p).fetchone()  # noqa: E731
    assert one("PRAGMA application_id") == (0x47504B47,) and one("PRAGMA user_version") == (10300,)
    assert one("PRAGMA integrity_check") == ("ok",) and db.execute("PRAGMA foreign_key_check").fetchall() == []
    assert {-1, 0, 4326} <= {row[0] for row in db.execute("SELECT srs_id FROM gpkg_spatial_ref_sys")}
    srs, = one("SELECT srs_id FROM gpkg_contents WHERE table_name = ? AND data_type = 'features'", layer)
    assert one("SELECT column_name, geometry_type_name, srs_id, z, m FROM gpkg_geometry_columns WHERE table_name = ?",
               layer) == ("geom", "GEOMETRY", srs, 2, 0)
    assert one("SELECT scope FROM gpkg_extensions WHERE table_name = ? AND extension_name = 'gpkg_rtree_index'",
               layer) == ("write-only",)
    triggers = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
    suffixes = ["insert", "update1", "update2", "update3", "update4", "delete"]
    assert {f"rtree_{layer}_geom_{s}" for s in suffixes} <= triggers, triggers
    expected = {}
    for fid, blob in db.execute(f"SELECT fid, geom FROM {layer} WHERE geom IS NOT NULL"):
        west, south, east, north = bounds(blob)
        expected[fid] = (west, east, south, north)
        assert int.from_bytes(blob[4:8], "little") == srs
        if blob[3] >> 1 & 7:
            assert tuple(numpy.frombuffer(blob[8:40], "<f8")) == expected[fid]
    found = {row[0]: row[1:] for row in db.execute(f"SELECT id, minx, maxx, miny, maxy FROM rtree_{layer}_geom")}
    assert found.keys() == expected.keys(), (len(found), len(expected))
    for fid, (west, east, south, north) in expected.items():
        # The R-tree keeps 32-bit numbers, rounded outwards.
        minx, maxx, miny, maxy = found[fid]
        assert minx <= west and east <= maxx and miny <= south and north <= maxy, fid
        assert max(west - minx, maxx - east, south - miny, maxy - north) < 1e-6 * max(map(abs, found[fid])) + 1e-6, fid
    if expected:
        extent = one("SELECT min_x, max_x, min_y, max_y FROM gpkg_contents WHERE table_name = ?", layer)
        wests, easts, souths, norths = zip(*expected.values(), strict=True)
        beyond = (extent[0] - min(wests), max(easts) - extent[1], extent[2] - min(souths), max(norths) - extent[3])
        # GDAL writes extents with 15 digits.
        assert max(beyond) < 1e-9, (extent, beyond)
    db.close()
    check = subprocess.run([*VALIDATE, str(path)], capture_output=True, text=True)
    if "No module named" in check.stderr:
        return False
    assert check.returncode == 0 and not check.stderr.strip(), check.stdout + check.stderr
    return True


def check_read(binary, folder):
    """Values, types and geometries come back as they went in; nothing else shows up."""
    path = folder / "read.gpkg"
    features = [feature(n, g) for n, g in enumerate(geometries())]
    features[3]["properties"] |= {"n": 3.5, "Name": "other case", "fid": 1}
    features.append({"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}, "properties": None})
    assert write(binary, path, features + features[:5], "batch=4") == ["applied"] * (len(features) + 5)
    validated = check_structure(path)
    text = gdal("ogrinfo", "-al", "-ro", path)
    assert text.count("Layer name:") == 1 and "Layer name: zones" in text
    assert f"Feature Count: {len(features)}" in text and 'ID["EPSG",4326]' in text
    assert not any(table in text for table in GUARDS), text
    assert [row[0] for row in pyogrio.list_layers(path)] == ["zones"]
    info = pyogrio.read_info(path, layer="zones")
    assert info["crs"] == "EPSG:4326" and info["features"] == len(features) and info["geometry_type"] == "Unknown", info
    types = dict(zip(info["fields"], info["dtypes"], strict=True))
    kinds = {"id": "int64", "n": "float64", "share": "float64", "open": "bool", "name": "object", "tags": "object"}
    assert {name: str(types[name]) for name in kinds} == kinds, types
    meta, fids, shapes, columns = pyogrio.raw.read(path, layer="zones", return_fids=True)
    table = dict(zip(meta["fields"], columns, strict=True))
    assert list(fids) == list(range(1, len(features) + 1))
    for i, f in enumerate(features[:-1]):
        want = shapely.from_geojson(json.dumps(f["geometry"]))
        got = shapely.from_wkb(shapes[i])
        # GeoJSON's rings have a direction, which is given to them: the shape is the same, position by position.
        same = shapely.equals_identical(got, want) or shapely.equals_identical(got, shapely.orient_polygons(want))
        assert same or want.has_z, (f["geometry"], got)
        assert shapely.get_coordinates(got, include_z=True).size == shapely.get_coordinates(want, include_z=True).size
        assert got.equals(want) or want.geom_type == "GeometryCollection", (want, got)
        p = f["properties"]
        assert (table["name"][i], table["n"][i], table["share"][i], table["open"][i]) == (p["name"], p["n"], p["share"], p["open"])
        assert json.loads(table["tags"][i]) == p["tags"] and table["id"][i] == f["id"]
        assert table["geonce_key"][i].startswith("g1_") and table["geonce_event"][i].startswith("evt_")
    assert json.loads(table["geonce_other"][3]) == {"Name": "other case", "fid": 1}
    assert numpy.isnan(table["n"][-1]) and table["name"][-1] is None
    box = bounds_of(features[0])
    hits = pyogrio.raw.read(path, layer="zones", bbox=box, return_fids=True)[1]
    inside = [i + 1 for i, s in enumerate(shapes) if shapely.from_wkb(s).intersects(shapely.box(*box))]
    assert sorted(hits) == inside and hits.size < len(features), (hits, inside)
    return f"{len(features)} features read back, {'validate_gpkg agrees' if validated else 'validate_gpkg is not installed'}"


def bounds_of(f, margin=1.0):
    west, south, east, north = shapely.from_geojson(json.dumps(f["geometry"])).bounds
    return west - margin, south - margin, east + margin, north + margin


def check_systems(binary, folder):
    """Layers in other systems are where pyproj says, under the system's name."""
    from pyproj import Transformer
    places = {3857: (13.4, 52.5), 32633: (13.4, 52.5), 25832: (9.1, 48.7), 2056: (7.4, 46.9), 28992: (5.1, 52.1), 2263: None}
    for code, place in places.items():
        path = folder / f"{code}.gpkg"
        if place is None:
            # An approximate operation is refused unless it is accepted in words; the layer is there all the same.
            f = feature(1, {"type": "Point", "coordinates": [-74, 40.7]})
            assert write(binary, path, [f], f"crs={code}") == ["dead crs crs_approximate"]
        else:
            assert write(binary, path, [feature(1, {"type": "Point", "coordinates": place})], f"crs={code}") == ["applied"]
            got = shapely.from_wkb(pyogrio.raw.read(path)[2][0])
            want = Transformer.from_crs(4326, code, always_xy=True).transform(*place)
            assert abs(got.x - want[0]) < 2 and abs(got.y - want[1]) < 2, (code, got, want)
        assert pyogrio.read_info(path)["crs"] == f"EPSG:{code}"
        assert f'ID["EPSG",{code}]' in gdal("ogrinfo", "-al", "-so", path)
        check_structure(path)
    return f"{len(places)} systems"


def check_edits(binary, folder):
    """GDAL changes, deletes and adds rows; the index stays right, and what was written is not written again."""
    path = folder / "edited.gpkg"
    features = [feature(n, g) for n, g in enumerate(geometries())]
    write(binary, path, features)
    sql = lambda text: gdal("ogrinfo", path, "-sql", text)  # noqa: E731
    sql("DELETE FROM zones WHERE n < 3")
    sql("UPDATE zones SET geom = NULL WHERE n = 4")
    sql("UPDATE zones SET name = 'renamed' WHERE n = 5")
    more = folder / "more.geojson"
    extra = [feature(100 + n, g) for n, g in enumerate(geometries(8))]
    more.write_text(json.dumps({"type": "FeatureCollection", "features": extra}))
    gdal("ogr2ogr", "-append", "-nln", "zones", path, more)
    check_structure(path)
    assert write(binary, path, features) == ["applied"] * len(features)
    late = feature(999, {"type": "Point", "coordinates": [3, 4]})
    assert write(binary, path, [late]) == ["applied"]
    check_structure(path)
    assert pyogrio.read_info(path)["features"] == len(features) - 3 + len(extra) + 1
    # A layer that GDAL made, with its own triggers and count, takes our rows too.
    other = folder / "foreign.gpkg"
    gdal("ogr2ogr", "-f", "GPKG", "-nln", "zones", "-nlt", "GEOMETRY", "-dim", "XYZ", other, more)
    assert set(write(binary, other, [late])) <= {"dead geometry geometry_z", "applied"}
    three = feature(1000, {"type": "Point", "coordinates": [3, 4, 5]})
    assert write(binary, other, [three, three]) == ["applied"] * 2
    rows, = sqlite3.connect(other).execute("SELECT count(*) FROM zones").fetchone()
    # GDAL keeps a count of its own, by triggers.
    assert f"Feature Count: {rows}" in gdal("ogrinfo", "-so", other, "zones")
    return f"{len(features)} rows edited, {len(extra)} added"


def check_upsert(binary, folder):
    """One row for each entity, at its latest version, whatever the order."""
    path = folder / "upsert.gpkg"
    r = random.Random(3)
    versions = [(name, version) for name in "abcdef" for version in range(1, 9)]
    r.shuffle(versions)
    features = [feature(v, {"type": "Point", "coordinates": [v, ord(name) - 90]}, name=name, version=v) for name, v in versions]
    for f in features:
        del f["id"]
    answers = write(binary, path, features, "mode=upsert", "batch=5")
    assert set(answers) == {"applied", "stale"}
    assert write(binary, path, features[::-1], "mode=upsert", "batch=7")[::-1] == answers
    table = pyogrio.raw.read(path)
    rows = dict(zip(table[0]["fields"], table[3], strict=True))
    assert sorted(zip(rows["name"], rows["version"], strict=True)) == [(name, 8) for name in "abcdef"]
    assert {shapely.from_wkb(w).x for w in table[2]} == {8.0}
    check_structure(path)
    return f"{answers.count('applied')} applied, {answers.count('stale')} stale, 6 rows"


def check_together(binary, folder):
    """GDAL reads and edits while we write, and a writer that ends at once leaves nothing half-written."""
    path = folder / "together.gpkg"
    write(binary, path, [feature(0, {"type": "Point", "coordinates": [0, 0]})])
    features = [feature(n, {"type": "Point", "coordinates": [n % 170, n // 170]}) for n in range(1, 6001)]
    writer = subprocess.Popen([binary, path, "zones", "batch=50", "close=no"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = "".join(json.dumps(f) + "\n" for f in features)
    answers = []
    feeding = threading.Thread(target=lambda: answers.append(writer.communicate(lines)))
    feeding.start()
    counts, edits = [], 0
    while feeding.is_alive():
        counts.append(pyogrio.raw.read(path, columns=["n"])[2].size)
        db = sqlite3.connect(path, timeout=30)
        db.execute("UPDATE gpkg_contents SET description = 'seen ' || ? WHERE table_name = 'zones'", (len(counts),))
        db.commit()
        db.close()
        edits += 1
    feeding.join()
    assert writer.returncode == 0, answers
    assert answers[0][0].splitlines() == ["applied"] * len(features)
    assert counts == sorted(counts) and len(counts) > 1, counts
    assert all((count - 1) % 50 == 0 for count in counts), "whole batches only"
    assert pyogrio.read_info(path)["features"] == len(features) + 1
    check_structure(path)
    assert write(binary, path, features) == ["applied"] * len(features)
    assert pyogrio.read_info(path)["features"] == len(features) + 1
    assert sorted(p.name for p in folder.glob("together.gpkg*")) == ["together.gpkg"], "nothing is left beside it"
    return f"{len(counts)} reads and {edits} edits while {len(features)} rows were written"


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    for tool in ("ogrinfo", "ogr2ogr"):
        if not shutil.which(tool):
            raise SystemExit(f"{tool} is missing: apt-get install gdal-bin")
    binary = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[3]) if "--keep" in sys.argv[2:] else Path(temporary)
        for check in (check_read, check_systems, check_edits, check_upsert, check_together):
            print(f"{check.__name__[6:]}: {check(binary, folder)}", flush=True)
    print(f"GeoPackages are what GDAL {gdal('ogrinfo', '--version').split(',')[0].split()[-1]} and {pyogrio.__gdal_version__} expect")


if __name__ == "__main__":
    main()
