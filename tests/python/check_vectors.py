"""Runs g1.py over the frozen vectors, and against the command line on random payloads.

    check_vectors.py                        the vectors; canonical bytes are also compared with the package rfc8785
    check_vectors.py --without-rfc8785      where that package is not installed
    check_vectors.py --binary PATH          also 2,000 and more seeded payloads through `PATH key`

Exit code 0 if nothing differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import g1

VECTORS = Path(__file__).resolve().parents[2] / "vectors"


def load() -> dict[str, list[dict[str, Any]]]:
    """All vectors, by file name."""
    return {path.name: json.loads(path.read_text("utf-8")) for path in sorted(VECTORS.glob("*.json"))}


def run(vector: dict[str, Any]) -> dict[str, Any]:
    """Computes a vector's `expect`."""
    policy = vector["policy"]
    try:
        if "rings" in vector:
            return {"polygons": g1.assemble(vector["rings"])}
        if "delivery" in vector:
            sent = vector["delivery"]
            keyed = g1.Keyed(g1.delivery(sent["by"], sent["id"], sent["index"], policy))
        else:
            payload = bytes.fromhex(vector["payload_hex"]) if "payload_hex" in vector else vector["payload"]
            keyed = g1.key(payload, policy, vector["form"])
    except g1.Refused as refused:
        return {"error": {"code": refused.code, "pointer": refused.pointer}}
    expect: dict[str, Any] = {
        "canonical": keyed.key.canonical,
        "key": keyed.key.text(vector.get("encoding", "base64")),
        "fingerprint": keyed.key.fingerprint,
        "aliases": sorted(alias.text() for alias in keyed.aliases),
    }
    if keyed.warnings:
        expect["warnings"] = sorted(set(keyed.warnings))
    if vector.get("content"):
        plain = {name: value for name, value in policy.items() if name not in ("identity", "version", "key_secret", "shape")}
        expect["content"] = g1.key(payload, plain, vector["form"]).key.fingerprint
    return expect


def names_of(vector: dict[str, Any]) -> tuple[str, set[str]]:
    """The key of a vector in its default text form, and all names its event is known by."""
    expect = vector["expect"]
    if "fingerprint" not in expect:
        return "", set()
    key = g1.Digest("", expect["fingerprint"], "key_secret" in vector["policy"]).text()
    return key, {key, *expect["aliases"]}


def relations(vectors: list[dict[str, Any]]) -> list[str]:
    """What `same_as`, `matches` and `differs_from` claim wrongly."""
    known = {vector["name"]: names_of(vector) for vector in vectors}
    wrong = []
    for vector in vectors:
        key, names = known[vector["name"]]
        for relation in ("same_as", "matches", "differs_from"):
            if relation not in vector:
                continue
            other_key, others = known.get(vector[relation], ("", set()))
            holds = {"same_as": key == other_key, "matches": bool(names & others),
                     "differs_from": not names & others}[relation]
            if not (key and other_key and holds):
                wrong.append(f"{vector['name']}: {relation} {vector[relation]!r} does not hold")
    return wrong


def check_rfc8785(vectors: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """Canonical bytes written again by another implementation of RFC 8785, where its integers reach."""
    import rfc8785

    done, wrong = 0, []
    for vector in vectors:
        canonical = vector["expect"].get("canonical")
        if canonical is None:
            continue
        try:
            again = rfc8785.dumps(json.loads(canonical)).decode()
        except rfc8785.IntegerDomainError:
            continue
        done += 1
        if again != canonical:
            wrong.append(f"{vector['name']}: rfc8785 writes {again}")
    return done, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks g1.py against the vectors and the command line.")
    parser.add_argument("--binary", type=Path, help="the program to compare with on random payloads")
    parser.add_argument("--count", type=int, default=2400, help="how many random payloads")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-rfc8785", action="store_true")
    options = parser.parse_args()

    vectors = [vector for file in load().values() for vector in file]
    wrong = []
    for vector in vectors:
        found = run(vector)
        if found != vector["expect"]:
            wrong.append(f"{vector['name']}\n  expected {vector['expect']}\n  found    {found}")
    wrong += relations(vectors)
    print(f"{len(vectors)} vectors, {len(wrong)} differ")
    if not options.without_rfc8785:
        done, again = check_rfc8785(vectors)
        print(f"{done} canonical texts through rfc8785, {len(again)} differ")
        wrong += again
    if options.binary:
        from differential import compare

        wrong += compare(options.binary, options.count, options.seed)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
