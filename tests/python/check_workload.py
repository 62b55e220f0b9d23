"""Keys of a large synthetic workload: every redelivery is recognised, no other event is merged.

Usage: check_workload.py BINARY [--reference DIR] [--seed N] [--scale F]

BINARY is the built `geonce`. DIR holds gen_workload.py (default ../shared/reference beside the workspace), which is not
part of this repository; without it the check says so and ends. Classes are made, keyed and deleted one after the other,
so that the disk never holds more than one.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

IDENTITY = ["/id", "/device_id", "/properties/asset_id", "/properties/zone_code", "/properties/status"]
# Points, parcels, polygons of 5,000 vertices, multipolygons: more than 100,000 events, each with every variant.
EVENTS = {"a": 96_000, "b": 3_500, "c": 10, "d": 500}
# What is not promised: noise on full-precision coordinates may cross a line of any grid. Shown, not judged.
UNJUDGED = "off"


def options():
    default = pathlib.Path(__file__).resolve().parents[2].parent / "shared" / "reference"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--reference", type=pathlib.Path, default=default, metavar="DIR")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the events")
    return parser.parse_args()


def generate(script, seed, cls, events, out):
    """Runs the generator for one class alone."""
    sizes = {name: events if name == cls else 0 for name in EVENTS}
    command = [sys.executable, str(script), "--seed", str(seed), "--out", str(out)]
    for name, count in sizes.items():
        command += [f"--n{name}", str(count)]
    command += ["--vmax", ",".join(f"{name}={count}" for name, count in sizes.items())]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def keys(binary, path):
    """For each line of a file the set of its keys, None where it is refused; lines that are empty are not there."""
    lines = [i for i, line in enumerate(path.open("rb")) if line.strip()]
    full = path.with_suffix(".full")
    with path.open("rb") as source, full.open("wb") as target:
        target.writelines(line for line in source if line.strip())
    path.unlink()
    command = [binary, "key", "--json"]
    for pointer in IDENTITY:
        command += ["--identity", pointer]
    found = {}
    with full.open("rb") as source, subprocess.Popen([*command, "-"], stdin=source, stdout=subprocess.PIPE) as process:
        for text in process.stdout:
            answer = json.loads(text)
            index = lines[answer["line"] - 1]
            if index in found:
                sys.exit(f"{path.name}: line {answer['line']} was answered twice")
            found[index] = None if "error" in answer else {answer["key"], *answer["aliases"]}
    full.unlink()
    if process.returncode not in (0, 1) or len(found) != len(lines):
        sys.exit(f"{path.name}: {len(found)} answers to {len(lines)} payloads, exit code {process.returncode}")
    return found


def recognised(base, other):
    """How many events of `other` share a key with the same event of `base`, and how many were refused."""
    same = sum(1 for i, found in other.items() if found and base[i] and found & base[i])
    return same, sum(1 for found in other.values() if found is None)


def collisions(base):
    """Events that share a key with another event of their class."""
    owners, merged = {}, 0
    for i, found in base.items():
        merged += any(owners.setdefault(key, i) != i for key in found or ())
    return merged


def check(binary, script, seed, cls, events, wrong):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        generate(script, seed, cls, events, out)
        base = keys(binary, out / f"base_{cls}.ndjson")
        off = keys(binary, out / f"off_{cls}_base.ndjson")
        if None in base.values() or len(base) != events:
            wrong.append(f"base_{cls}: not all {events} events have a key")
        merged = collisions(base)
        print(f"base_{cls:<26}{len(base):>8} events  {merged:>7} merged")
        if merged:
            wrong.append(f"base_{cls}: {merged} different events share a key")
        for path in sorted(out.glob(f"*_{cls}_*.ndjson")):
            kind = path.stem.split("_")[0]
            other = keys(binary, path)
            same, refused = recognised(off if kind == UNJUDGED else base, other)
            share = 100 * same / max(1, len(other))
            print(f"{path.stem:<31}{len(other):>8} events  {same:>7} same  {refused:>7} refused  {share:7.3f} %")
            if kind == "dup" and same != len(other):
                wrong.append(f"{path.stem}: {len(other) - same} redeliveries missed")
            if kind == "neg" and same:
                wrong.append(f"{path.stem}: {same} other events merged")


def main():
    given = options()
    script = given.reference / "gen_workload.py"
    if not script.is_file():
        print(f"left out: {script} is not there, so no workload was checked", file=sys.stderr)
        return 0
    wrong = []
    for cls, events in EVENTS.items():
        check(given.binary, script, given.seed, cls, max(1, int(events * given.scale)), wrong)
    print("\n".join(wrong) if wrong else "every redelivery recognised, nothing merged")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
