"""Keys per CPU second beside Python, and instructions beside the floor; one run, both sides, ratios.

    python bench/run.py [--repeat 5] [--reference DIR]

CPU seconds are those of whole processes: start, reading and printing included. `--reference` puts the articles' own
function beside it, read from that folder. Instructions are counted by valgrind's callgrind, with the compression function
of SHA-256 left out on both sides (valgrind hides the processor's SHA instructions).
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

import workload

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASE = ROOT / "target" / "release"
PYTHON_LINES = {"points": 20_000, "parcels": 2_000, "polygons": 20, "multipolygons": 500}
COUNTED_LINES = {"points": 40_000, "parcels": 5_000, "polygons": 50, "multipolygons": 2_000}
ARTICLE = """
import json, sys
sys.path.insert(0, sys.argv[1] + "/seeds")
from seed0_event_key import generate_spatial_event_key
names = ["device_id", "asset_id", "zone_code", "status"]
with open(sys.argv[2], "rb") as file:
    sys.stdout.write("".join(generate_spatial_event_key(json.loads(l), whitelist_props=names) + "\\n" for l in file))
"""


def cpu_seconds(command: list[str]) -> float:
    """CPU seconds, user and system, of one run of `command`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rate(command: list[str], lines: int, repeat: int) -> float:
    return lines / statistics.median(cpu_seconds(command) for _ in range(repeat))


def instructions(command: list[str]) -> int:
    """Instructions of one run without the compression function of SHA-256."""
    with tempfile.NamedTemporaryFile() as out:
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}", *command]
        log = subprocess.run(valgrind, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True).stderr
        total = int(re.search(r"refs:\s+([\d,]+)", log)[1].replace(",", ""))
        table = subprocess.run(["callgrind_annotate", out.name], capture_output=True, text=True, check=True).stdout
    hidden = [line for line in table.splitlines() if re.search(r"sha2::sha256.*compress", line)]
    if not hidden:
        sys.exit("the SHA-256 compression function was not found in the profile")
    return total - sum(int(re.match(r"\s*([\d,]+)", line)[1].replace(",", "")) for line in hidden)


def stripped(binary: str, folder: str) -> str:
    """A copy without debug lines, so that callgrind counts by function and not by line."""
    target = os.path.join(folder, binary)
    shutil.copy(RELEASE / binary, target)
    subprocess.run(["strip", "--strip-debug", target], check=True)
    return target


def key_command(binary: str, file: str, *more: str) -> list[str]:
    identity = [flag for pointer in workload.IDENTITY for flag in ("--identity", pointer)]
    return [binary, "key", "--threads", "1", *identity, *more, file]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="0 leaves the seconds out and counts instructions only")
    parser.add_argument("--reference", default=str(ROOT.parent / "shared" / "reference"))
    options = parser.parse_args()
    article = os.path.exists(os.path.join(options.reference, "seeds", "seed0_event_key.py"))
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'':14}{'geonce':>14}{'python':>12}{'ratio':>8}{'articles':>12}{'ratio':>8}   keys per CPU second")
        for kind, count in workload.CLASSES.items() if options.repeat else ():
            file, few = f"{folder}/{kind}.ndjson", f"{folder}/{kind}-few.ndjson"
            workload.write(kind, file, count)
            workload.write(kind, few, PYTHON_LINES[kind])
            ours = rate(key_command(str(RELEASE / "geonce"), file), count, options.repeat)
            fair = rate([sys.executable, str(ROOT / "bench/baseline.py"), few], PYTHON_LINES[kind], options.repeat)
            row = f"{kind:14}{ours:>14,.0f}{fair:>12,.0f}{ours / fair:>8.1f}"
            if article:
                command = [sys.executable, "-c", ARTICLE, options.reference, few]
                theirs = rate(command, PYTHON_LINES[kind], options.repeat)
                row += f"{theirs:>12,.0f}{ours / theirs:>8.1f}"
            print(row, flush=True)
        if not article:
            print("the articles' function was left out: no reference folder")
        if shutil.which("valgrind") is None:
            sys.exit("valgrind is not installed: instructions were not counted")
        print(f"\n{'':14}{'geonce':>14}{'floor':>12}{'ratio':>8}   instructions per payload, SHA-256 compression left out")
        geonce, floor = stripped("geonce", folder), stripped("floor", folder)
        for kind in workload.CLASSES:
            file, canonical = f"{folder}/{kind}.ndjson", f"{folder}/{kind}.canonical"
            workload.write(kind, file, COUNTED_LINES[kind])
            answers = subprocess.run(key_command(geonce, file, "--json", "--canonical"), capture_output=True, check=True)
            with open(canonical, "w", encoding="utf-8") as out:
                out.writelines(json.loads(line)["canonical"] + "\n" for line in answers.stdout.splitlines())
            ours = instructions(key_command(geonce, file)) / COUNTED_LINES[kind]
            least = instructions([floor, file, canonical]) / COUNTED_LINES[kind]
            print(f"{kind:14}{ours:>14,.0f}{least:>12,.0f}{ours / least:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
