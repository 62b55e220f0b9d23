"""Keeps `vectors/`: fills in new entries, never touches old ones.

    vectors.py            fills `expect` of entries that have none, by tests/python/g1.py, and freezes them
    vectors.py --check    changes nothing; fails if an entry has no expectation, was changed or has vanished

`vectors/frozen.sha256` holds one line per vector: a digest of the whole entry, and its name. An entry that is frozen
can only be changed by taking its line out by hand, which a review will see.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "python"))

import check_vectors  # noqa: E402

FROZEN = check_vectors.VECTORS / "frozen.sha256"


def digest(vector: dict[str, Any]) -> str:
    """Of an entry, whatever the order of its members."""
    return hashlib.sha256(json.dumps(vector, sort_keys=True).encode()).hexdigest()


def read_frozen() -> dict[str, str]:
    lines = FROZEN.read_text("utf-8").splitlines() if FROZEN.exists() else []
    return {json.loads(name): value for value, name in (line.split("  ", 1) for line in lines)}


def text_of(vectors: list[dict[str, Any]]) -> str:
    """One member per line, ASCII only: no editor can compose or decompose what is in there."""
    blocks = []
    for vector in vectors:
        members = (f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in vector.items())
        blocks.append("  {\n" + ",\n".join(members) + "\n  }")
    return "[\n" + ",\n".join(blocks) + "\n]\n"


def problems(files: dict[str, list[dict[str, Any]]], frozen: dict[str, str]) -> list[str]:
    found, seen = [], set()
    for file, vectors in files.items():
        for vector in vectors:
            name = vector["name"]
            if name in seen:
                found.append(f"{file}: {name}: the name occurs twice")
            seen.add(name)
            if "expect" not in vector:
                found.append(f"{file}: {name}: no expectation; run tools/vectors.py")
            elif frozen.get(name) != digest(vector):
                found.append(f"{file}: {name}: {'changed' if name in frozen else 'not frozen; run tools/vectors.py'}")
    found += [f"{name}: vanished" for name in frozen.keys() - seen]
    return found + check_vectors.relations([v for vectors in files.values() for v in vectors if "expect" in v])


def main() -> int:
    parser = argparse.ArgumentParser(description="Fills and checks the vectors.")
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args()
    files, frozen = check_vectors.load(), read_frozen()
    if not options.check:
        for file, vectors in files.items():
            for vector in vectors:
                if "expect" not in vector:
                    vector["expect"] = check_vectors.run(vector)
                frozen.setdefault(vector["name"], digest(vector))
            (check_vectors.VECTORS / file).write_text(text_of(vectors), "utf-8")
        lines = [f"{value}  {json.dumps(name)}\n" for name, value in frozen.items()]
        FROZEN.write_text("".join(lines), "utf-8")
    wrong = problems(files, frozen)
    print(f"{sum(map(len, files.values()))} vectors in {len(files)} files, {len(wrong)} problems")
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
