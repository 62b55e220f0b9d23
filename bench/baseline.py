"""What a careful Python engineer would write: parse, round, normalise, serialise, hash. One key per line.

It recognises rotated and reversed rings through shapely's normalize; it has one grid, no coordinate systems, no strict
reading, and no pointers to what is wrong.
"""

import hashlib
import sys

import numpy
import orjson
import shapely
import shapely.geometry

POINTERS = [("id",), ("device_id",), ("properties", "asset_id"), ("properties", "zone_code"), ("properties", "status")]


def find(payload: dict, path: tuple[str, ...]) -> object:
    for name in path:
        payload = payload[name]
    return payload


def key(line: bytes) -> str:
    payload = orjson.loads(line)
    geometry = shapely.geometry.shape(payload["geometry"])
    rounded = shapely.transform(geometry, lambda positions: numpy.round(positions, 7) + 0.0)
    normal = shapely.remove_repeated_points(rounded).normalize()
    identity = {"/" + "/".join(path): find(payload, path) for path in POINTERS}
    canonical = orjson.dumps(
        {"geometry": shapely.geometry.mapping(normal), "identity": identity}, option=orjson.OPT_SORT_KEYS
    )
    return hashlib.sha256(canonical).digest()[:16].hex()


def main() -> None:
    with open(sys.argv[1], "rb") as file:
        sys.stdout.write("".join(key(line) + "\n" for line in file))


if __name__ == "__main__":
    main()
