#!/usr/bin/env python3
"""Reads files that GDAL, pyogrio, geopandas and pyarrow write, and compares every geometry and value with what went in.

    python tests/python/check_files.py PATH/TO/read_file [--corpora FOLDER]

Needs geopandas, pyogrio, pyarrow and shapely (requirements.txt) and Debian's gdal-bin (ogr2ogr, ogrinfo).
"""

import argparse
import datetime
import json
import subprocess
import tempfile
from pathlib import Path

import geopandas
import numpy
import pyarrow.parquet
import shapely

ROWS = 3_000


def read(binary, format, path, *more):
    """The layer and its features; fails where one cannot be read."""
    done = subprocess.run([binary, *more, format, path], capture_output=True, text=True)
    assert done.returncode == 0, f"{path}: {done.stderr}"
    layer, *features = (json.loads(line) for line in done.stdout.splitlines())
    bad = [feature for feature in features if "bad" in feature]
    assert not bad, f"{path}: {bad[:3]}"
    return layer, features


def sample(z):
    """Every type of geometry, missing values, and the kinds of fields that all formats have."""
    r = numpy.random.default_rng(7)

    def points(n):
        xy = r.uniform(-80, 80, (n, 3 if z else 2))
        return [tuple(map(float, p)) for p in xy]

    def polygon():
        ring = points(3)
        x, y, *height = ring[0]
        hole = [(x + 1e-9, y, *height), (x + 2e-9, y, *height), (x, y + 1e-9, *height)]
        return shapely.Polygon(ring, [hole])

    makers = [
        lambda: shapely.Point(points(1)[0]),
        lambda: shapely.LineString(points(4)),
        polygon,
        lambda: shapely.MultiPoint(points(3)),
        lambda: shapely.MultiLineString([points(2), points(3)]),
        lambda: shapely.MultiPolygon([polygon(), polygon()]),
        lambda: shapely.GeometryCollection([shapely.Point(points(1)[0]), shapely.LineString(points(2))]),
    ]
    moment = datetime.datetime(2024, 2, 29, 10, 20, 30, 500_000)
    number = numpy.arange(ROWS)
    return geopandas.GeoDataFrame(
        {
            "number": number,
            "large": number.astype("int64") + 2**53,
            "share": r.random(ROWS),
            "name": [None if i % 7 == 0 else f"ä {i} \"'" for i in range(ROWS)],
            "open": number % 2 == 0,
            "seen": [moment + datetime.timedelta(milliseconds=int(i)) for i in number],
        },
        geometry=[makers[i % len(makers)]() for i in range(ROWS)],
        crs=25832,
    )


def compare(frame, layer, features, what):
    assert layer["crs"] == 25832, f"{what}: {layer['crs']}"
    assert len(features) == len(frame), f"{what}: {len(features)}"
    names = [name for name, _ in layer["fields"]]
    number = names.index("number")
    # An index sorts the features of a FlatGeobuf file.
    features = sorted(features, key=lambda feature: feature["values"][number])
    ours = shapely.from_wkb([feature["geometry"] for feature in features])
    theirs = frame.geometry.values
    for i, (a, b) in enumerate(zip(ours, theirs)):
        assert shapely.to_wkb(a) == shapely.to_wkb(shapely.from_wkb(shapely.to_wkb(b))), f"{what}: geometry {i}: {a} {b}"
    for name in ("number", "large", "share", "open", "name"):
        place = names.index(name)
        for i, feature in enumerate(features):
            expected = frame[name].iloc[i]
            expected = None if expected is None or expected != expected else expected
            assert feature["values"][place] == expected, f"{what}: {name} {i}: {feature['values'][place]} {expected}"
    place = names.index("seen")
    for i, feature in enumerate(features):
        text = feature["values"][place].removesuffix("Z")
        assert datetime.datetime.fromisoformat(text) == frame["seen"].iloc[i].to_pydatetime(), f"{what}: {text}"


def check_formats(binary, folder):
    for z in (False, True):
        frame = sample(z)
        path = folder / f"pyogrio{z}.gpkg"
        frame.to_file(path, driver="GPKG", engine="pyogrio")
        compare(frame, *read(binary, "gpkg", path), path.name)
        # Of mixed types with heights, GDAL keeps the heights in FlatGeobuf only where it is told to.
        heights = ["-nlt", "GEOMETRYZ", "-dim", "XYZ"] if z else []
        for driver, format, index in (("GPKG", "gpkg", "YES"), ("FlatGeobuf", "fgb", "YES"), ("FlatGeobuf", "fgb", "NO")):
            again = folder / f"gdal {z} {index}.{format}"
            command = ["ogr2ogr", "-f", driver, "-lco", f"SPATIAL_INDEX={index}", *heights, again, path]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            compare(frame, *read(binary, format, again), again.name)
        for compression in ("snappy", "zstd", "gzip", "brotli", "lz4", None):
            for size in (700, 1_000_000):
                path = folder / "geopandas.parquet"
                frame.to_parquet(path, compression=compression, row_group_size=size, write_covering_bbox=z)
                compare(frame, *read(binary, "parquet", path), f"{compression} {size}")
        for version in ("1.0", "2.6"):
            for page in ("1.0", "2.0"):
                table = pyarrow.parquet.read_table(path)
                other = folder / "pyarrow.parquet"
                pyarrow.parquet.write_table(table, other, version=version, data_page_version=page, data_page_size=4_096)
                compare(frame, *read(binary, "parquet", other), f"pyarrow {version} {page}")
    native = folder / "native.parquet"
    frame.iloc[[0]].to_parquet(native, geometry_encoding="geoarrow")
    done = subprocess.run([binary, "parquet", native], capture_output=True, text=True)
    assert done.returncode == 1 and "only WKB can be read" in done.stderr, done.stderr


def check_corpora(binary, corpora):
    """As many features as GDAL finds, or a refusal."""
    for path in sorted((corpora / "gpkg").glob("*.gpkg")):
        listed = subprocess.run(["ogrinfo", "-ro", "-q", path], capture_output=True, text=True)
        layers = [line.split(": ", 1)[1].split(" (")[0] for line in listed.stdout.splitlines()[:50] if ": " in line]
        for layer in layers if listed.returncode == 0 else []:
            text = subprocess.run(["ogrinfo", "-ro", "-al", path, layer], capture_output=True, text=True).stdout
            done = subprocess.run([binary, "--layer", layer, "gpkg", path], capture_output=True, text=True)
            count = len(done.stdout.splitlines()) - 1
            assert done.returncode == 1 or count == text.count("\nOGRFeature("), f"{path.name} {layer}: {count}"
            print(f"{path.name} {layer}: {count if done.returncode == 0 else done.stderr.strip()}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=Path)
    parser.add_argument("--corpora", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        check_formats(arguments.binary.resolve(), Path(folder))
    if arguments.corpora:
        check_corpora(arguments.binary.resolve(), arguments.corpora)
    print("files of GDAL, pyogrio, geopandas and pyarrow are read as they were written")


if __name__ == "__main__":
    main()
