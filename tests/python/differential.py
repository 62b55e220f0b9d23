"""Random payloads and policies through g1.py and through `PROGRAM key`, compared line by line.

Payloads are drawn from few values, so that ties, repeated positions, equal parts and collapsed rings are common. About
a third are damaged: text cut, doubled or replaced, members removed, renamed or repeated.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import g1
from g1_read import NESTING, SINGLE

LINES_PER_POLICY = 40
ORDINATES = ["0", "-0", "1", "9", "10", "-10", "1.00000005", "1.00000015", "1.000000049", "1.0000000500000001", "0.5",
             "2.5e-7", "1e-7", "-1.00000005", "45.4545454545", "45.45454546", "89.99999996", "90", "-90", "1.000000046",
             "12.345678949999999", "12.34567895", "1e1", "100e-2", "0.30000000000000004", "33.333333333333336"]
LONGITUDES = [*ORDINATES, "180", "-180", "179.99999996", "-179.999999954", "180.00000004"]
HEIGHTS = ["0", "1", "1.0005", "-2.00049", "1e3", "99.99945454545"]
NUMBERS = ["0", "-0", "1", "1.0", "1e21", "1e23", "9007199254740993", "9007199254740993.5", "-9007199254740992", "0.1",
           "1e-7", "123456789012345678901234567890", "5e-324", "4.35", "1.7976931348623157e308", "1e-400", "2.50", "3"]
TEXTS = ["", "a", "\u00e9", "e\u0301", "\U0001f600", "\ufb33", "\u2028", "\\n", "\\u0000", "\\/", "\\ud83d\\ude00",
         '\\"', "2024-05-01T12:00:00Z", "2024-05-01"]
NAMES = ["a", "b", "asset", "state", "attempt", "_meta", "received_at", "sent_at", "a/b", "~", "\U0001f600", "\ufb33",
         "\\u00e9", "\u20ac", "v", "0", "", "type", "bbox", "webhook_id"]
FAULTS = [('"Point"', '"point"'), ('"coordinates"', '"coords"'), ('"geometry"', '"geometrie"'), ("]", "]]"),
          ("[", "[["), ('"type"', '"typ"'), ("0", "1e999"), (":[", ":[[],"), ("1", "200"), (",", ",,"),
          ('"a"', '"\\ud800"'),
          ('"asset"', '"attempt"'), ("1", "null"), ('"properties"', '"coordinates"'), ("{", '{"bbox":[1,2],'),
          ("{", '{"a":1,"\\u0061":1,'), ("]", ",1]"), ("}", ',"id":null}')]
IDENTITY = ["/id", "/properties/a", "/properties/v", "/properties/a~1b", "/properties/~0", "/title", "/properties/b/0",
            "/properties/state/asset"]
IGNORE = ["/id", "/properties/a", "/properties/b/0", "/properties/b/1", "/title", "/properties", "/properties/a~1b/v",
          "/when"]


class Maker:
    """Draws payloads and policies."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def some(self, make: Any, low: int, high: int) -> list[Any]:
        return [make() for _ in range(self.random.randint(low, high))]

    def position(self, dimensions: int) -> str:
        pick = self.random.choice
        values = [pick(LONGITUDES), pick(ORDINATES), pick(HEIGHTS)]
        if self.random.random() < 0.3:
            values[0] = repr(round(self.random.uniform(-180, 180), self.random.randint(5, 17)))
        return "[" + ",".join(values[:dimensions]) + "]"

    def path(self, dimensions: int, ring: bool) -> str:
        path = self.some(lambda: self.position(dimensions), 3 if ring else 2, 7)
        for _ in range(self.random.randint(0, 2)):
            i = self.random.randrange(len(path))
            path.insert(i, path[i])
        return "[" + ",".join([*path, path[0]] if ring else path) + "]"

    def coordinates(self, name: str, dimensions: int) -> str:
        if name == "Point":
            return self.position(dimensions)
        if name == "LineString":
            return self.path(dimensions, False)
        if name == "Polygon":
            return "[" + ",".join(self.some(lambda: self.path(dimensions, True), 1, 3)) + "]"
        parts = self.some(lambda: self.coordinates(SINGLE[name], dimensions), 1, 4)
        if self.random.random() < 0.3:
            parts.append(parts[0])
        return "[" + ",".join(parts) + "]"

    def geometry(self, dimensions: int, depth: int = 0) -> str:
        if self.random.random() < 0.12 and depth < 3:
            members = self.some(lambda: self.geometry(dimensions, depth + 1), 1, 4)
            return '{"type":"GeometryCollection","geometries":[%s]}' % ",".join(members)
        name = self.random.choice(list(NESTING))
        return '{"type":"%s","coordinates":%s}' % (name, self.coordinates(name, dimensions))

    def value(self, depth: int = 0) -> str:
        kind = self.random.random()
        if kind < 0.4 or depth > 3:
            return self.random.choice(NUMBERS)
        if kind < 0.65:
            return '"%s"' % self.random.choice(TEXTS)
        if kind < 0.75:
            return self.random.choice(["null", "true", "false"])
        if kind < 0.85:
            return "[" + ",".join(self.some(lambda: self.value(depth + 1), 0, 3)) + "]"
        return self.object(depth + 1)

    def object(self, depth: int = 0) -> str:
        names = self.random.sample(NAMES, self.random.randint(0, 5))
        return "{" + ",".join(f'"{name}":{self.value(depth)}' for name in names) + "}"

    def payload(self) -> str:
        geometry = self.geometry(self.random.choice([2, 2, 2, 3]))
        if self.random.random() < 0.15:
            return geometry
        members = ['"type":"Feature"', f'"geometry":{geometry}']
        if self.random.random() < 0.9:
            members.append(f'"properties":{self.random.choice(["null", self.object(), self.object(), self.object()])}')
        for name in self.random.sample(["id", "title", "attempt", "links", "when"], self.random.randint(0, 3)):
            value = self.random.choice([*NUMBERS, '"x"']) if name == "id" else self.value()
            members.append(f'"{name}":{value}')
        self.random.shuffle(members)
        return "{" + ",".join(members) + "}"

    def damaged(self) -> str:
        """A payload with one fault, or none if the change happens to be harmless."""
        text, pick = self.payload(), self.random.choice
        i = self.random.randrange(len(text))
        kind = self.random.randrange(6)
        if kind == 0:
            return text[:max(i, 1)]
        if kind == 1:
            return text[:i] + pick(list('{}[],:"\\0-.e+x ')) + text[i:]
        if kind == 2:
            return text[:i] + text[i + 1:] or "x"
        old, new = pick(FAULTS)
        places = [n for n in range(len(text)) if text.startswith(old, n)]
        if not places:
            return text
        n = pick(places)
        return text[:n] + new + text[n + len(old):]

    def policy(self) -> dict[str, Any]:
        chance, pick = self.random.random, self.random.choice
        policy: dict[str, Any] = {}
        if chance() < 0.4:
            policy["precision"] = self.random.randint(0, 9)
        if chance() < 0.3:
            policy["lines"] = "undirected"
        if chance() < 0.3:
            policy["parts"] = "ordered"
        if chance() < 0.35:
            policy["dimensions"] = 2
            if chance() < 0.6:
                policy["shape"] = pick(["simplified", "simplified", "bbox"])
        if chance() < 0.2:
            policy["scope"] = pick(["fleet", "stra\u00dfe", 'a"b'])
        if chance() < 0.35:
            places = self.random.sample(IDENTITY, self.random.randint(1, 3))
            policy["identity"] = [{"at": at, "optional": True} if chance() < 0.9 else at for at in places]
        elif chance() < 0.4:
            policy["ignore"] = self.random.sample(IGNORE, self.random.randint(1, 3))
        if chance() < 0.08:
            policy["version"] = pick(["/id", "/properties/v"])
        return policy


def arguments(policy: dict[str, Any]) -> list[str]:
    """A policy as options of `key`."""
    out = []
    for entry in policy.get("identity", []):
        out += ["--identity", entry] if isinstance(entry, str) else ["--identity-optional", entry["at"]]
    for pointer in policy.get("ignore", []):
        out += ["--ignore", pointer]
    for name in ("precision", "scope", "lines", "parts", "dimensions", "shape", "version"):
        if name in policy:
            out += [f"--{name}", str(policy[name])]
    return out


def answer(payload: str, policy: dict[str, Any]) -> dict[str, Any]:
    """What g1.py says."""
    try:
        keyed = g1.key(payload, policy)
    except g1.Refused as refused:
        return {"code": refused.code, "pointer": refused.pointer}
    return {"key": keyed.key.text(), "fingerprint": keyed.key.fingerprint, "canonical": keyed.key.canonical,
            "aliases": sorted(alias.text() for alias in keyed.aliases), "warnings": sorted(set(keyed.warnings))}


def said(line: dict[str, Any]) -> dict[str, Any]:
    """What the program says, in the same form."""
    if "error" in line:
        return {"code": line["error"]["code"], "pointer": line["error"]["pointer"]}
    codes = {w if isinstance(w, str) else w["code"] for w in line.get("warnings", [])}
    return {"key": line["key"], "fingerprint": line["fingerprint"].rsplit("_", 1)[-1], "canonical": line["canonical"],
            "aliases": sorted(line.get("aliases", [])), "warnings": sorted(codes)}


def compare(program: Path, count: int, seed: int) -> list[str]:
    """Lines on which the two differ.

    Where a payload has several faults, the specification does not say which one is named: such lines are counted,
    and differ only if one side accepts what the other refuses.
    """
    maker, wrong, done, refused, other_fault = Maker(seed), [], 0, 0, 0
    while done < count:
        policy = maker.policy()
        damaged = [maker.random.random() < 0.35 for _ in range(LINES_PER_POLICY)]
        payloads = [maker.damaged() if bad else maker.payload() for bad in damaged]
        command = [str(program), "key", "--json", "--canonical", *arguments(policy), "--format", "ndjson", "-"]
        run = subprocess.run(command, input="\n".join(payloads).encode() + b"\n", capture_output=True, check=False)
        lines = run.stdout.decode().removesuffix("\n").split("\n")
        if len(lines) != len(payloads):
            return [*wrong, f"{len(lines)} answers to {len(payloads)} lines: {command} {run.stderr.decode()}"]
        for payload, line in zip(payloads, lines):
            ours, theirs = answer(payload, policy), said(json.loads(line))
            refused += "code" in ours
            if ours == theirs:
                continue
            if "code" in ours and "code" in theirs:
                other_fault += 1
            else:
                wrong.append(f"{policy}\n  {payload}\n  g1.py   {ours}\n  program {theirs}")
        done += len(payloads)
    print(f"{done} random payloads, {refused} refused ({other_fault} for another of their faults), {len(wrong)} differ")
    return wrong
