#!/usr/bin/env python3
"""Loads files of other programs with `geonce load` and with ogr2ogr, and compares what is in the layers afterwards.

    python tests/python/check_load.py PATH/TO/geonce [--corpora FOLDER]

Every file of the corpora has the same features and geometries as after ogr2ogr, or is refused, as a whole or a feature, for a
reason that is listed here. Files that geopandas writes come back from PostGIS as they were. The program `services` is beside geonce.
"""

import argparse
import contextlib
import json
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import geopandas
import numpy
import pyogrio
import shapely

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "faults"))
from services import Database, Services  # noqa: E402

# Where geometries differ from GDAL's on purpose. Rings that GDAL takes for a polygon with a hole outside of it are two polygons; a point
# that is not a number is no geometry.
DIFFER = {"multipolygon_as_invalid_polygon.shp": 2, "pointnan.shp": 1}
# Features that are left out, by code, in files that ogr2ogr loads whole or without their geometries.
LEFT_OUT = {
    "bigoffset.shp": {"geojson_bounds": 1},
    "buggymultiline.shp": {"shapefile_record": 1},
    "buggymultipoint.shp": {"shapefile_record": 1},
    "buggymultipoly.shp": {"shapefile_record": 1},
    "buggymultipoly2.shp": {"shapefile_record": 1},
    "buggypoint.shp": {"geojson_bounds": 1},
    "gjmultipoly.shp": {"part_nested": 1},
    "gdal-huge_feature_count.gpkg": {"geojson_bounds": 1},
    "gdal-poly_non_conformant.gpkg": {"geojson_bounds": 1},
    "gdal-poly_golden.gpkg": {"crs_domain": 10},
    "naturalearth_lowres.shp": {"self_intersection": 1},
    "ogr_geojson_14.geojson": {"geojson_coordinates": 17, "geojson_empty": 1, "geojson_member_type": 2, "geojson_missing": 1,
                               "geojson_position": 5},
    "srs_name.geojson": {"crs_ambiguous": 1},
}
# Files that ogr2ogr does not read.
ONLY_OURS = {"feature_with_type_Topology_property.json": 1}
# Files that are refused as a whole.
REFUSED = {"ets-empty.gpkg": "gpkg_no_layer", "stac_item.json": "json_syntax"}


class Loader:
    def __init__(self, binary: str, folder: Path):
        self.binary, self.folder, self.number = binary, folder, 0

    def load(self, source, destination, layer, *more) -> tuple[int, dict, str]:
        self.number += 1
        command = [self.binary, "load", source, destination, "--layer", layer, "--json", "--progress", "none",
                   "--data", self.folder / "data", *more]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout) if done.stdout.strip() else {}, done.stderr


def geometries(file: Path, layer: str) -> list[str]:
    """The geometries of a layer, in order, so that equal ones are written alike."""
    frame = pyogrio.read_dataframe(file, layer=layer, columns=[], fid_as_index=True)
    found = shapely.normalize(frame.geometry.values)
    return [None if shape is None else shape.wkb_hex for shape in found]


def corpus_files(corpora: Path) -> list[Path]:
    shapefiles = sorted(corpora.glob("shp/*.shp")) + sorted(corpora.glob("naturalearth/*.shp"))
    return shapefiles + sorted(corpora.glob("gpkg/*.gpkg")) + sorted((corpora / "geojson" / "gdal").glob("*json"))


def layers(source: Path) -> list[str | None]:
    """The layers of features of a GeoPackage; of another file, the only one."""
    if source.suffix != ".gpkg":
        return [None]
    with contextlib.closing(sqlite3.connect(f"file:{source}?immutable=1", uri=True)) as file:
        found = file.execute("SELECT table_name FROM gpkg_contents WHERE data_type = 'features'").fetchall()
    return [name for (name,) in found] or [None]


def beside_ogr2ogr(loader: Loader, source: Path, layer: str | None, folder: Path) -> str:
    name = f"{source.name}_{layer}.gpkg"
    ours, theirs = folder / f"ours_{name}", folder / f"theirs_{name}"
    of_layer = ["--source-layer", layer] if layer else []
    code, report, error = loader.load(source, ours, "layer", "--dst-crs", "same", "--approximate-crs", *of_layer)
    if code == 2 and ("crs_missing" in error or "crs_unknown" in error):
        code, report, error = loader.load(source, ours, "layer", "--dst-crs", "same", "--src-crs", "EPSG:4326", *of_layer)
    if code == 2 or source.name in REFUSED:
        assert f"[{REFUSED.get(source.name)}]" in error, f"{source.name}: {code} {report} {error}"
        return f"refused: {error.splitlines()[0]}"
    if source.name in ONLY_OURS:
        assert report["inserted"] == ONLY_OURS[source.name], f"{source.name}: {report}"
        return f"{report['inserted']} features, which ogr2ogr does not read"
    command = ["ogr2ogr", "-f", "GPKG", theirs, source, "-nln", "layer", "-a_srs", "EPSG:4326", "-skipfailures", "-unsetFid"]
    subprocess.run([*command, *([layer] if layer else [])], capture_output=True, check=True)
    expected, found = geometries(theirs, "layer"), geometries(ours, "layer")
    codes = report.get("codes", {})
    assert codes == (LEFT_OUT.get(source.name, {}) if report["features"] else {}), f"{source.name}: {report}"
    if codes:
        assert len(found) + report["rejected"] == len(expected) and set(found) <= set(expected), f"{source.name}: {report}"
        return f"{len(found)} features, {report['rejected']} left out: {codes}"
    assert len(found) == len(expected), f"{source.name}: {len(found)} features, ogr2ogr has {len(expected)}"
    differing = sum(a != b for a, b in zip(found, expected))
    assert differing == DIFFER.get(source.name, 0), f"{source.name}: {differing} geometries differ"
    return f"{len(found)} features" + (f", {differing} geometries differ" if differing else "")


def frame() -> geopandas.GeoDataFrame:
    rng = numpy.random.default_rng(11)
    count = 500
    x, y = rng.uniform(300_000, 700_000, count), rng.uniform(5_200_000, 6_000_000, count)
    return geopandas.GeoDataFrame(
        {
            "id": numpy.arange(count, dtype="int64") + 2**53,
            "name": [f"Größe {i} 東" for i in range(count)],
            "height": rng.uniform(0, 10, count),
        },
        geometry=[shapely.box(a, b, a + 50, b + 20) for a, b in zip(x, y)],
        crs="EPSG:25832",
    )


def through_postgis(loader: Loader, folder: Path, database: Database) -> None:
    """Files of geopandas come to PostGIS whole and in the right place, whichever format they are in."""
    data = frame()
    files = {"gpkg": folder / "a.gpkg", "fgb": folder / "a.fgb", "shp": folder / "a.shp", "parquet": folder / "a.parquet"}
    data.to_file(files["gpkg"], driver="GPKG")
    data.to_file(files["fgb"], driver="FlatGeobuf")
    data.to_file(files["shp"], driver="ESRI Shapefile", encoding="UTF-8")
    data.to_parquet(files["parquet"])
    files["zip"] = folder / "a.shp.zip"
    with zipfile.ZipFile(files["zip"], "w", zipfile.ZIP_DEFLATED) as archive:
        for part in folder.glob("a.*"):
            if part.suffix in (".shp", ".shx", ".dbf", ".prj", ".cpg"):
                archive.write(part, part.name)
    subprocess.run(["ogr2ogr", "-f", "PostgreSQL", f"PG:{database.direct}", files["gpkg"], "-nln", "theirs", "-t_srs", "EPSG:4326",
                    "-lco", "GEOMETRY_NAME=geom"], check=True)
    loads = {}
    for kind, file in files.items():
        code, report, error = loader.load(file, database.direct, f"ours_{kind}")
        assert code == 0 and report["inserted"] == len(data), f"{kind}: {code} {report} {error}"
        loads[kind] = report["sha256"]
        same = database.sql(
            f"SELECT count(*), bool_and(ST_IsValid(o.geom)), bool_and(ST_SRID(o.geom) = 4326), bool_and(o.name = t.name), "
            f"bool_and(ST_HausdorffDistance(o.geom, t.geom) < 1e-9) FROM ours_{kind} o JOIN theirs t ON t.id = o.id")[0]
        assert same == [str(len(data)), "t", "t", "t", "t"], f"{kind}: {same}"
        code, report, error = loader.load(file, database.direct, f"ours_{kind}")
        assert (code, report["outcome"]) == (0, "already"), f"{kind}: {report} {error}"
    assert loads["zip"] == loads["shp"], "a zipped shapefile is another one"
    print(f"through PostGIS: {', '.join(files)}: {len(data)} features each, valid, in place, loaded once")


def broken(loader: Loader, folder: Path) -> None:
    """Files that are damaged or hostile are refused in words, and nothing is written."""
    good = folder / "a.gpkg"
    cases = {"cut.gpkg": good.read_bytes()[:20_000], "cut.fgb": (folder / "a.fgb").read_bytes()[:9_000],
             "cut.parquet": (folder / "a.parquet").read_bytes()[:-50], "cut.shp": (folder / "a.shp").read_bytes()[:5_000],
             "cut.geojson": b'{"type":"FeatureCollection","features":[{"type":"Feature",',
             "empty.geojson": b"", "noise.zip": b"PK\x03\x04" + b"\x00" * 500}
    slip = folder / "slip.zip"
    with zipfile.ZipFile(slip, "w") as archive:
        archive.writestr("../../slipped.geojson", '{"type":"FeatureCollection","features":[]}')
    bomb = folder / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.geojson", b"[" * (200 << 20))
    files = [slip, bomb]
    for name, content in cases.items():
        (folder / name).write_bytes(content)
        files.append(folder / name)
    for file in files:
        out = folder / f"out_{file.name}.gpkg"
        code, report, error = loader.load(file, out, "layer", "--src-crs", "EPSG:4326")
        assert code == 2 and "error: " in error and "panicked" not in error, f"{file.name}: {code} {report} {error}"
        assert not out.exists() or not pyogrio.list_layers(out).size, f"{file.name}: something was written"
    print(f"broken and hostile files: {len(files)} refused")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--corpora", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, Services(given.binary) as services:
        folder = Path(name)
        loader = Loader(given.binary, folder)
        through_postgis(loader, folder, Database(services))
        broken(loader, folder)
        if given.corpora is None:
            print("the corpora are not here: their files were not loaded")
            return
        for source in corpus_files(given.corpora):
            for layer in layers(source):
                print(f"{source.parent.name}/{source.name}: {beside_ogr2ogr(loader, source, layer, folder)}")


if __name__ == "__main__":
    main()
