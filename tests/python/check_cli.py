"""The command line as a user meets it: forms, exit codes, refusals, hostile input, memory, the README's own example.

    check_cli.py BINARY
"""

import argparse
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time

POLYGON = [[[13.1, 52.1], [13.2, 52.1], [13.2, 52.2], [13.1, 52.1]]]
FEATURE = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": POLYGON}, "properties": None}
POINT = '{"type":"Point","coordinates":[%s,52.5]}'
MEMORY_BOUND_MB = 64
SECONDS_FOR_A_MB = 0.5  # of a build for tests; what is released takes less than a fifth

failures: list[str] = []


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        failures.append(f"{what}:\n  found  {found!r}\n  wanted {wanted!r}")


def run(binary: str, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    done = subprocess.run([binary, *arguments], input=stdin, capture_output=True, timeout=120)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def key(binary: str, payload: bytes, *arguments: str) -> str:
    code, out, _ = run(binary, "key", *arguments, "-", stdin=payload)
    return out if code == 0 else f"exit {code}: {out}"


def forms(binary: str) -> None:
    """One feature, one key, whatever its form."""
    wkt = "POLYGON ((13.1 52.1, 13.2 52.1, 13.2 52.2, 13.1 52.1))"
    ring = POLYGON[0]
    wkb = struct.pack("<BIII", 1, 3, 1, len(ring)) + b"".join(struct.pack("<dd", *position) for position in ring)
    wanted = key(binary, json.dumps(FEATURE).encode())
    expect("a key is one line", wanted.startswith("g1_") and wanted.count("\n") == 1, True)
    collection = {"type": "FeatureCollection", "features": [FEATURE]}
    for what, payload in {
        "compact": json.dumps(FEATURE, separators=(",", ":")).encode(),
        "pretty": json.dumps(FEATURE, indent=2).encode(),
        "ndjson": json.dumps(FEATURE).encode() + b"\n",
        "sequence": b"\x1e" + json.dumps(FEATURE).encode() + b"\n",
        "collection": json.dumps(collection).encode(),
        "pretty collection": json.dumps(collection, indent=1).encode(),
        "collection with type last": json.dumps(collection, sort_keys=True).encode(),
        "bare geometry": json.dumps(FEATURE["geometry"]).encode(),
        "wkt": wkt.encode(),
        "ewkt": b"SRID=4326;" + wkt.encode(),
        "wkb": wkb,
        "wkb in hexadecimal": wkb.hex().encode(),
    }.items():
        expect(f"{what} has the same key", key(binary, payload), wanted)


def answers(binary: str) -> None:
    """Exit codes, order, refusals beside keys, `--strict`, `--json`."""
    good, bad = POINT % "13.4", POINT % "213.4"
    code, out, err = run(binary, "key", "-", stdin=f"{good}\n{bad}\n{good}\n".encode())
    lines = out.splitlines()
    expect("a refusal does not stop the rest", (code, len(lines), lines[1]), (1, 3, "ERR geojson_bounds /coordinates/0"))
    expect("a summary of refusals", "refused 1 of 3: geojson_bounds 1" in err, True)
    code, out, _ = run(binary, "key", "--strict", "-", stdin=f"{good}\n{bad}\n{good}\n".encode())
    expect("--strict stops at the first refusal", (code, len(out.splitlines())), (1, 2))
    code, out, _ = run(binary, "key", "--json", "-", stdin=f"{good}\n\n{bad}\n".encode())
    first, second = map(json.loads, out.splitlines())
    expect("members of an answer", list(first), ["line", "key", "aliases", "fingerprint", "warnings"])
    expect("members of a refusal", (list(second), list(second["error"])), (["line", "error"], ["code", "pointer", "message", "hint"]))
    expect("blank lines count as lines", (first["line"], second["line"]), (1, 3))
    many = "".join(POINT % (i / 1000) + "\n" for i in range(30_000)).encode()
    one = run(binary, "key", "--threads", "1", "-", stdin=many)[1]
    expect("order is kept on many threads", run(binary, "key", "--threads", "4", "-", stdin=many)[1] == one, True)
    expect("a broken first line of many", run(binary, "key", "-", stdin=b'{"type":"Poi\n' + good.encode())[1].count("\n"), 2)
    expect("a missing file", run(binary, "key", "no-such-file.json")[0], 2)
    expect("an unknown flag", run(binary, "key", "--nonsense")[0], 2)
    expect("a pointer without slash", run(binary, "key", "--identity", "id", "-", stdin=good.encode())[0], 2)
    expect("an empty pointer", run(binary, "key", "--identity", "", "-", stdin=good.encode())[0], 2)
    code, out, _ = run(binary, "key", "-", stdin=b'{"a\\nb":{"type":"x"},"type":"Feature","geometry":null}')
    expect("one line per refusal", out.count("\n"), 1)
    for encoding, length in (("base64", 25), ("hex", 35), ("full", 67)):
        expect(f"--encoding {encoding}", len(key(binary, good.encode(), "--encoding", encoding).strip()), length)


def collections(binary: str, folder: str) -> None:
    """`crs` behind `features`: honoured in a file, refused on a stream."""
    late = {
        "type": "FeatureCollection",
        "features": [{"type": "Feature", "geometry": {"type": "Point", "coordinates": [1113194.9, 6446275.8]}, "properties": {}}],
        "crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::3857"}},
    }
    path = os.path.join(folder, "late.geojson")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(late, file)
    code, out, _ = run(binary, "key", path)
    expect("a late crs in a file", (code, out.startswith("g1_")), (0, True))
    code, out, _ = run(binary, "key", "-", stdin=json.dumps(late).encode())
    expect("a late crs on a stream", (code, out.splitlines()[-1]), (1, "ERR crs_after_features /crs"))
    early = {"type": late["type"], "crs": late["crs"], "features": late["features"]}
    expect("an early crs on a stream", key(binary, json.dumps(early).encode()), run(binary, "key", path)[1])


def explained(binary: str, folder: str) -> None:
    """`explain` answers by its exit code, as text, JSON and SVG."""
    def write(name: str, payload: object) -> str:
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(payload, file)
        return path

    a = write("a.json", FEATURE)
    rotated = json.loads(json.dumps(FEATURE))
    rotated["geometry"]["coordinates"] = [[POLYGON[0][i] for i in (1, 2, 0, 1)]]
    b = write("b.json", rotated)
    c = write("c.json", {**FEATURE, "id": 7})
    code, out, _ = run(binary, "explain", a, b, "--json")
    found = json.loads(out)
    expect("a rotated ring is the same event", (code, found["same"]), (0, True))
    expect("and the ring start is named", "ring_start" in [r["code"] for r in found["removed"]], True)
    code, out, _ = run(binary, "explain", a, c, "--json")
    expect("another id is another event", (code, json.loads(out)["reasons"][0]["code"]), (1, "identity_field"))
    expect("text for people", run(binary, "explain", a, c)[1].startswith("different"), True)
    expect("a drawing", run(binary, "explain", a, c, "--svg", "-")[1].lstrip().startswith("<svg"), True)
    expect("a refused payload", run(binary, "explain", a, write("d.json", {"type": "Nothing"}))[0], 2)


def in_time(payload: bytes) -> float:
    """CPU seconds after which a payload must have been answered: what grows with its square takes far longer."""
    return SECONDS_FOR_A_MB * max(1.0, len(payload) / 1e6)


def hostile(binary: str) -> None:
    """What must be refused is refused, quickly; nothing crashes."""
    star = [[50 * (i % 2 * 2 - 1) + i * 1e-4, (i * 7919 % 100) * 0.5] for i in range(40_000)]
    bombs = {
        "deep arrays": b"[" * 1_000_000,
        "deep objects": b'{"a":' * 200_000,
        "a million members": b"{" + b",".join(b'"%d":0' % i for i in range(100_000)) + b"}",
        "one long string": b'{"type":"' + b"x" * 1_000_000 + b'"}',
        "one long number": b'{"type":"Point","coordinates":[1,' + b"9" * 1_000_000 + b"]}",
        "NaN": b'{"type":"Point","coordinates":[NaN,1]}',
        "an infinite number": b'{"type":"Point","coordinates":[1e999,1]}',
        "not UTF-8": b'{"type":"\xff\xfe"}',
        "a byte order mark": b"\xef\xbb\xbf" + (POINT % "1.5").encode(),
        "zero bytes": b"\0" * 1_000_000,
        "repeated names": b'{"type":"Point","type":"Point","coordinates":[1,2]}',
        "names equal after unescaping": b'{"type":"Point","\\u0074ype":"Point","coordinates":[1,2]}',
        "arrays under escaped names": b'{"type":"Thing",' + b",".join([b'"\\u0061":[]'] * 70_000) + b"}",
        "many lists of features": b'{"type":"Thing",' + b",".join([b'"features":[]'] * 70_000) + b"}",
        "half a surrogate pair": b'{"type":"Feature","id":"\\ud800","geometry":null}',
    }
    for what, payload in bombs.items():
        start = time.process_time(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        code, out, err = run(binary, "key", "-", stdin=payload)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start[1]
        expect(f"{what}: refused", (code, out.startswith("ERR "), "panicked" in err), (1, True, False))
        allowed = in_time(payload)
        expect(f"{what}: within {allowed:.2f} CPU seconds ({spent:.2f})", spent <= allowed, True)
    triangles = [[[[i % 300 * 0.5, 1], [i % 300 * 0.5 + 0.1, 1], [i % 300 * 0.5, 1.1]]] for i in range(30_000)]
    payload = json.dumps({"type": "MultiPolygon", "coordinates": triangles}).encode()
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    code, out, _ = run(binary, "key", "--close-rings", "-", stdin=payload)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    expect(f"30,000 unclosed rings are closed in time ({spent:.2f} s)", (code, spent <= in_time(payload)), (0, True))
    payload = json.dumps({"type": "Polygon", "coordinates": [[*star, star[0]]]}).encode()
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    code, out, _ = run(binary, "key", "--json", "--validity", "-", stdin=payload)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    expect("a star of 40,000 crossing edges is keyed and reported on", (code, json.loads(out)["validity"]["valid"]), (0, False))
    expect(f"the star: within budget ({spent:.2f} s)", spent <= in_time(payload), True)


def peak_memory_mb(command: list[str], feed) -> float:
    """Peak memory of a process that is fed by `feed`."""
    process = subprocess.Popen(["/usr/bin/env", "python3", "-c", PEAK, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    feed(process.stdin)
    process.stdin.close()
    peak = process.stdout.read()
    process.wait()
    return float(peak.split()[-1]) / 1024


PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def memory(binary: str, folder: str) -> None:
    """Memory does not grow with the input."""
    line = json.dumps(FEATURE).encode()

    def ndjson(pipe) -> None:
        block = (line + b"\n") * 10_000
        for _ in range(2**30 // len(block) + 1):
            pipe.write(block)

    peak = peak_memory_mb([binary, "key", "-"], ndjson)
    expect(f"1 GB of NDJSON in {peak:.0f} MB", peak < MEMORY_BOUND_MB, True)
    path = os.path.join(folder, "large.geojson")
    with open(path, "wb") as file:
        file.write(b'{"type":"FeatureCollection","features":[')
        block = b",".join([line] * 1_000)
        file.write(b",".join([block] * (100_000_000 // len(block) + 1)) + b"]}")
    peak = peak_memory_mb([binary, "key", path], lambda pipe: None)
    expect(f"a FeatureCollection of 100 MB in {peak:.0f} MB", peak < MEMORY_BOUND_MB, True)


def readme(binary: str) -> None:
    """The example of the README is true."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "..", "..", "README.md"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    echo = next(line for line in lines if line.startswith("$ echo "))
    payload = echo.split("'")[1]
    shown = lines[lines.index("$ geonce key a.json") + 1]
    expect("the README's key", key(binary, payload.encode()).strip(), shown)
    expect("the README has at most 120 lines", len(lines) <= 120, True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        forms(options.binary)
        answers(options.binary)
        collections(options.binary, folder)
        explained(options.binary, folder)
        hostile(options.binary)
        memory(options.binary, folder)
    readme(options.binary)
    expect("the demo", run(options.binary, "demo")[0], 0)
    for failure in failures:
        print(failure)
    print(f"command line: {len(failures)} failures")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
