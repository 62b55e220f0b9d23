"""Seeded payloads for the benchmarks: points of 250 bytes, parcels of 2 KB, polygons of 100 KB, multipolygons."""

import json
import math
import random

CLASSES = {"points": 200_000, "parcels": 30_000, "polygons": 500, "multipolygons": 10_000}
IDENTITY = ["/id", "/device_id", "/properties/asset_id", "/properties/zone_code", "/properties/status"]


def ring(rng: random.Random, x: float, y: float, radius: float, count: int) -> list[list[float]]:
    """A simple closed ring around (x, y), seven decimals."""
    positions = []
    for i in range(count):
        angle = 2 * math.pi * (i + rng.random() * 0.8) / count
        distance = radius * rng.uniform(0.7, 1.0)
        positions.append([round(x + distance * math.cos(angle), 7), round(y + distance * math.sin(angle), 7)])
    return [*positions, positions[0]]


def geometry(kind: str, rng: random.Random) -> dict:
    x, y = rng.uniform(-170, 170), rng.uniform(-80, 80)
    match kind:
        case "points":
            return {"type": "Point", "coordinates": [round(x, 7), round(y, 7)]}
        case "parcels":
            rings = [ring(rng, x, y, 0.002, rng.randint(40, 90))]
            if rng.random() < 0.2:
                rings += [ring(rng, x + dx, y, 0.0003, 6)[::-1] for dx in (-0.0005, 0.0005)]
            return {"type": "Polygon", "coordinates": rings}
        case "polygons":
            return {"type": "Polygon", "coordinates": [ring(rng, x, y, 0.2, 4_000)]}
        case _:
            parts = [[ring(rng, x + 0.01 * i, y, 0.004, rng.randint(15, 30))] for i in range(10)]
            rng.shuffle(parts)
            return {"type": "MultiPolygon", "coordinates": parts}


def feature(kind: str, number: int, rng: random.Random) -> dict:
    properties = {
        "asset_id": f"A-{rng.randrange(10**6):06d}",
        "zone_code": f"Z{rng.randrange(100):02d}",
        "speed": round(rng.uniform(0, 40), 2),
        "heading": rng.randrange(360),
        "sequence": number,
        "status": rng.choice(["ok", "moving", "idle"]),
    }
    return {
        "type": "Feature",
        "id": f"evt-{number:08d}",
        "device_id": f"dev-{rng.randrange(5_000):05d}",
        "geometry": geometry(kind, rng),
        "properties": properties,
    }


def write(kind: str, path: str, count: int, seed: int = 1) -> None:
    """Writes `count` features, one a line; few large ones are generated and repeated in turn."""
    rng = random.Random(f"{seed}/{kind}")
    distinct = min(count, {"polygons": 50}.get(kind, 5_000))
    lines = [json.dumps(feature(kind, i, rng), separators=(",", ":")) for i in range(distinct)]
    with open(path, "w", encoding="utf-8") as file:
        for i in range(count):
            file.write(lines[i % distinct] + "\n")
