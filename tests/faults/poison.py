"""R13: a thousand poisonous bodies among good traffic, through to the sink. No answer is a 5xx, none is missing, the good
events are unharmed; what was accepted after all is at the sink or visibly dead."""

import asyncio
import gzip
import json
import pathlib
import random
import struct
import sys
import tempfile

from client import BROKEN, Connection, Traffic, feature
from gateway import Gateway
from law import Result, median, options, percentile_99, trial

BODIES = 1_000
# Half of the good events are as fast as ever. The slowest hundredth shares the machine with bodies of megabytes and with whatever
# else runs there: it is printed, and only must not stall.
MEDIAN_SECONDS_MAX = 0.1
P99_SECONDS_MAX = 1.0
GOOD_SENDERS = 6
POISON_SENDERS = 4
# Enough to see what is wrong.
WRONG_MAX = 20
GEOJSON, NDJSON, WKT, WKB = "application/geo+json", "application/x-ndjson", "text/plain", "application/octet-stream"


def point(x: str, y: str) -> bytes:
    return f'{{"type":"Feature","geometry":{{"type":"Point","coordinates":[{x},{y}]}},"properties":{{}}}}'.encode()


def shape(kind: str, coordinates: str) -> bytes:
    return f'{{"type":"Feature","geometry":{{"type":"{kind}","coordinates":{coordinates}}},"properties":{{}}}}'.encode()


def properties(text: bytes) -> bytes:
    return b'{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2]},"properties":' + text + b"}"


def star(vertices: int) -> str:
    ring = [
        [round(10 * ((i * 7919) % vertices) / vertices, 6), round(10 * ((i * 104_729) % vertices) / vertices, 6)]
        for i in range(vertices)
    ]
    return json.dumps([[*ring, ring[0]]])


def crafted() -> list[tuple[bytes, dict]]:
    """Bodies that have broken somebody before, with the headers they come with."""
    texts = [
        b"",
        b" ",
        b"null",
        b"42",
        b'"x"',
        b"[]",
        b"{}",
        b"[1,2]",
        b"true",
        b"NaN",
        b"{",
        b"]",
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf" + feature(1),
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"type":"Feature"}',
        b'{"type":"FeatureCollection","features":[]}',
        b'{"type":"FeatureCollection","features":[null,1,{}]}',
        b'{"type":"FeatureCollection"}',
        feature(1) + feature(2),
        feature(1)[:-1],
        b'{"type":"Feature","geometry":null,"properties":null}',
        b'{"type":"Feature","geometry":{},"properties":{}}',
        b'{"type":"Feature","type":"Feature","geometry":{"type":"Point","coordinates":[1,2]},"properties":{}}',
        b'{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2]},"properties":{"a":1,"\\u0061":2}}',
    ]
    numbers = [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e400",
        "1e308",
        "-1e308",
        "1e-400",
        "181",
        "-180.0000001",
        "0x10",
        "01",
        "+1",
        "1.",
        ".5",
        "--1",
        "9" * 400,
        "0." + "0" * 5_000 + "1",
        "null",
        '"1"',
        "[1]",
        "true",
        "",
    ]
    texts += [point(number, "1") for number in numbers] + [point("1", number) for number in numbers]
    texts += [
        point("181", "91"),
        point("1", "2,3,4"),
        point("1", "2,3,4,5,6"),
        shape("Point", "[]"),
        shape("Point", "[1]"),
        shape("Point", "null"),
    ]
    texts += [
        shape("Polygon", rings)
        for rings in (
            "[]",
            "[[]]",
            "[[[0,0],[1,1]]]",
            "[[[0,0],[1,0],[1,1],[0,1]]]",
            "[[[0,0],[1,0],[1,1],[0,0,5]]]",
            "[[[0,0],[0,0],[0,0],[0,0]]]",
            "[[[0,0],[2,2],[2,0],[0,2],[0,0]]]",
            "[null]",
            "[[null]]",
            '[["a"]]',
            star(101),
            star(5_001),
            "[[" + "[0,0]," * 100_000 + "[0,0]]]",
            "[" + "[[0,0],[1,0],[1,1],[0,0]]," * 20_000 + "[[0,0],[1,0],[1,1],[0,0]]]",
        )
    ]
    texts += [
        shape(kind, "[[1,2],[3,4]]")
        for kind in ("point", "Circle", "", "Polygon\\u0000", "MultiPolygon", "LineString", "GeometryCollection")
    ]
    texts += [
        shape("LineString", "[[1,2]]"),
        shape("LineString", "[]"),
        shape("MultiPoint", "[]"),
        shape("MultiPolygon", "[[[]]]"),
    ]
    nested = '{"type":"GeometryCollection","geometries":[' * 500 + "]}" * 500
    texts += [b'{"type":"Feature","geometry":' + nested.encode() + b',"properties":{}}']
    texts += [
        properties(text)
        for text in (
            b'{"a":"\\ud800"}',
            b'{"a":"\\u0000"}',
            b'{"a":"\xc3\x28"}',
            b'{"a":"\xed\xa0\x80"}',
            b'{"a\\u0000b":1}',
            b'{"":1}',
            b'{"fid":1}',
            b'{"geom":"x"}',
            b'{"geonce_key":"g1_x"}',
            b'{"geonce_event":"evt_x"}',
            b'{"rowid":7}',
            b'{"a\\"; DROP TABLE features; --":1}',
            b'{"<script>":"</script>"}',
            b'{"n":"text instead of a number"}',
            b'{"n":1e300}',
            b'{"n":9223372036854775808}',
            b'{"n":{"deep":[1]}}',
            b'{"N":1,"n":2}',
            b'{"a":"' + b"x" * 2_000_000 + b'"}',
            b"{" + b",".join(b'"p%d":%d' % (i, i) for i in range(3_000)) + b"}",
            b"[1]",
            b"7",
            b"null",
        )
    ]
    bodies = [(text, {"media": GEOJSON}) for text in texts]
    bodies += [
        (text, {"media": NDJSON})
        for text in (
            b"\n\n\n",
            b"{\n}\n",
            feature(1)[:30] + b"\n",
            b"\xff\n" * 50,
            b"[]\n" * 11_000,
            b'{"type":"Feature"\n' * 100,
            b"null\n" + feature(10**9),
        )
    ]
    bodies += [
        (text.encode(), {"media": WKT})
        for text in (
            "POINT",
            "POINT EMPTY",
            "POINT (1)",
            "POINT (1 2 3 4 5)",
            "POINT (nan inf)",
            "POLYGON ((0 0))",
            "POINT M (1 2 3)",
            "SRID=0;POINT (1 2)",
            "(" * 5_000,
            "CIRCULARSTRING (0 0, 1 1, 2 0)",
        )
    ]
    bodies += [
        (blob, {"media": WKB})
        for blob in (
            b"",
            b"\x01",
            b"\x01\x01\0\0\0",
            struct.pack("<BIdd", 1, 1, float("nan"), 1e308),
            struct.pack("<BII", 1, 3, 0xFFFFFFFF),
            struct.pack("<BII", 1, 6, 0x7FFFFFFF),
            struct.pack("<BI", 1, 0xFFFFFFFF) * 40,
            struct.pack("<BII", 1, 7, 1) * 4_000,
            bytes(range(256)),
        )
    ]
    squeezed = gzip.compress(feature(3))
    bodies += [
        (blob, {"media": GEOJSON, "content_encoding": "gzip"})
        for blob in (b"", b"\x1f\x8b", squeezed[:-4], squeezed[:20], feature(1), gzip.compress(b"\0" * 50_000_000))
    ]
    bodies += [
        (feature(1), {"media": media})
        for media in ("", "text/html", "application/json; charset=utf-16", "multipart/form-data", "x" * 3_000)
    ]
    bodies += [
        (feature(1), {"media": GEOJSON, "content_encoding": coding}) for coding in ("br", "gzip, gzip", "identity, x")
    ]
    bodies += [
        (feature(1), {"media": GEOJSON, "path": path})
        for path in ("/in/unknown", "/in/", "/in/default/x", "/in/%00", "/in/../in/default", "/in/" + "x" * 5_000)
    ]
    return bodies


def mutated(rng: random.Random) -> tuple[bytes, dict]:
    """A good body with a few bytes changed, cut, doubled or swapped. It may be good still."""
    body = bytearray(feature(10**9 + rng.randrange(10**6)))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(body))
        match rng.randrange(4):
            case 0:
                body[at] = rng.randrange(256)
            case 1:
                del body[at : at + rng.randint(1, 12)]
            case 2:
                body[at:at] = body[at : at + rng.randint(1, 30)]
            case _:
                body[at:at] = rng.choice([b"\\u0000", b"\xf0\x28", b"[[", b"}}", b'"', b",", b"-", b"e999", b"null"])
        if not body:
            break
    return bytes(body), {"media": rng.choice([GEOJSON, GEOJSON, GEOJSON, NDJSON])}


def events_in(told) -> set[str]:
    """The ids of all events that an answer names, of one feature or several: accepted, duplicate, or kept as dead."""
    if isinstance(told, list):
        return set().union(*map(events_in, told))
    if not isinstance(told, dict):
        return set()
    named = {told[name] for name in ("event", "of") if isinstance(told.get(name), str)}
    return named.union(*map(events_in, told.values()))


async def poison(traffic: Traffic, bodies: list, statuses: dict[int, int]) -> None:
    connection = None
    while bodies and len(traffic.wrong) < WRONG_MAX:
        body, headers = bodies.pop()
        try:
            connection = connection or await Connection.open(traffic.ports[0])
            answer = await connection.post(body, **headers)
        except BROKEN as error:
            traffic.wrong.append(f"no answer ({type(error).__name__}) to {body[:80]!r} {headers}")
            connection = None
            continue
        traffic.deliveries += 1
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        if answer.status >= 500:
            traffic.wrong.append(f"{answer.status} to {body[:80]!r} {headers}: {answer.body[:200]!r}")
        elif answer.status < 300:
            traffic.others |= events_in(answer.json())
        elif answer.headers.get("content-type") != "application/problem+json" or "code" not in answer.json():
            traffic.wrong.append(f"{answer.status} without a problem to {body[:80]!r}: {answer.body[:200]!r}")
        if answer.headers.get("connection") == "close":
            connection.close()
            connection = None
    if connection:
        connection.close()


async def run(gateway: Gateway, traffic: Traffic, result: Result, seed: int) -> None:
    rng = random.Random(seed)
    bodies = crafted()
    bodies += [mutated(rng) for _ in range(BODIES - len(bodies))]
    rng.shuffle(bodies)
    gateway.start()
    process = gateway.process.pid
    senders = [asyncio.create_task(traffic.send(0.005)) for _ in range(GOOD_SENDERS)]
    statuses: dict[int, int] = {}
    await asyncio.gather(*(poison(traffic, bodies, statuses) for _ in range(POISON_SENDERS)))
    await traffic.finish(senders)
    typical, p99 = median(traffic.latencies), percentile_99(traffic.latencies)
    # A poisonous body may be a copy of a good one: then it is that event.
    traffic.others -= set(traffic.acknowledged.values())
    told = json.dumps(statuses, sort_keys=True).replace(" ", "")
    result.more = {"poison": BODIES, "p50": f"{typical * 1000:.1f}ms", "statuses": told}
    result.require(gateway.alive() and gateway.process.pid == process, "the gateway ended")
    result.require(typical < MEDIAN_SECONDS_MAX, f"good p50 {typical * 1000:.0f} ms")
    result.require(p99 < P99_SECONDS_MAX, f"good p99 {p99 * 1000:.0f} ms")
    result.require("panicked" not in gateway.log.read_text(errors="replace"), "the log has a panic")


def main() -> int:
    given = options(__doc__)
    result = Result("R13-poison", given.seed)
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(given.binary, pathlib.Path(folder, "data"), pathlib.Path(folder, "log"))
        traffic = Traffic(gateway.port, given.seed)
        trial(result, gateway, traffic, run(gateway, traffic, result, given.seed), dead_allowed=BODIES)
    return result.finish()


if __name__ == "__main__":
    sys.exit(main())
