"""The spatial event key `g1`, written from docs/key-spec.md alone.

A second implementation beside the Rust one, for checking: slow, plain, Python's standard library only. The sections
named here are those of the specification; reading (section 1) is in g1_read.py. `key(payload, policy)` is the way in; a
payload that is refused raises `Refused`, with a code and a JSON pointer. A policy is a dictionary of the settings that
are not the default, in the names of `geonce.toml`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import re
import unicodedata
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from g1_read import (COLLECTION, SINGLE, Geo, Number, Position, Reader, Refused, WkbReader, WktReader, check_lengths,
                     check_object, escape_token, find, member, read_geometry, tokens, type_of)

MAX_SAFE = 2**53 - 1
IGNORED = {"_meta", "received_at", "sent_at", "request_id", "delivery_id", "delivery_attempt", "attempt", "retry_count",
           "webhook_id"}
APPROXIMATE = {4269, 4283, 7844, 27700}
FEATURE_MEMBERS = {"type", "geometry", "bbox", "crs", "links"}


class Digest(NamedTuple):
    """Canonical bytes and what is made of them (section 12)."""

    canonical: str
    fingerprint: str
    keyed: bool

    def text(self, encoding: str = "base64") -> str:
        half = self.fingerprint[:32]
        letters = {"base64": base64.urlsafe_b64encode(bytes.fromhex(half)).decode().rstrip("="),
                   "hex": half, "full": self.fingerprint}[encoding]
        return ("g1k_" if self.keyed else "g1_") + letters


@dataclass
class Keyed:
    """The result for one payload."""

    key: Digest
    aliases: list[Digest] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


# --- 2 Coordinate system --------------------------------------------------------------------------------------------

def crs_code(text: str, at: str) -> int:
    """The EPSG code of a declaration; 4326 also for CRS84."""
    url = r"https?://www\.opengis\.net/def/crs"
    if re.fullmatch(rf"(?i:(OGC:)?CRS84|urn:ogc:def:crs:OGC:[0-9.]*:CRS84|{url}/OGC/[0-9.]+/CRS84)", text):
        return 4326
    found = re.fullmatch(rf"(?i:EPSG:|urn:ogc:def:crs:EPSG:[0-9.]*:|{url}/EPSG/[0-9.]+/|)(\d+)", text, re.ASCII)
    if not found:
        raise Refused("crs_ambiguous", at)
    return {900913: 3857, 3785: 3857, 102100: 3857, 102113: 3857}.get(int(found[1]), int(found[1]))


def declared(value: dict[str, Any], at: str) -> int | None:
    """The `crs` member of GeoJSON of 2008."""
    if "crs" not in value:
        return None
    crs = value["crs"]
    kind = crs.get("type") if isinstance(crs, dict) else None
    place = {"name": "/properties/name", "EPSG": "/properties/code"}.get(kind, "") if isinstance(kind, str) else ""
    name = find(crs, place)[1] if place else None
    if isinstance(name, Number) and kind == "EPSG":
        name = name.text
    if not isinstance(name, str):
        raise Refused("crs_ambiguous", f"{at}/crs")
    return known_crs(crs_code(name, f"{at}/crs{place}"), f"{at}/crs{place}")


def known_crs(code: int, at: str) -> int:
    """Degrees, and Web Mercator. Of the rest of the table a few approximate systems are known, to be refused."""
    if code not in (4326, 3857, *APPROXIMATE):
        raise Refused("crs_unknown", at)
    return code


def to_wgs84(code: int, values: tuple[float, ...]) -> tuple[float, ...]:
    if code == 4326:
        return values
    radius = 6378137.0
    x, y = values[:2]
    return (x / (math.pi * radius) * 180.0, math.degrees(math.atan(math.sinh(y / radius))), *values[2:])


# --- 3 Third number, 4 Grid, 5 Points -------------------------------------------------------------------------------

def grid(value: float, decimals: int) -> tuple[int, int]:
    """A double on the half-even and on the tie-safe grid."""
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    magnitude, shift = int("".join(map(str, digits))), int(exponent) + decimals
    if shift >= 0:
        q, rest, unit = magnitude * 10**shift, 0, 1
    else:
        unit = 10**-shift
        q, rest = divmod(magnitude, unit)
    even = q + (2 * rest > unit or (2 * rest == unit and q % 2 == 1))
    safe = q + (11 * rest >= 5 * unit)
    return (-even, -safe) if sign else (even, safe)


def snap(position: Position, policy: dict[str, Any], code: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A position on both grids."""
    p, dimensions = policy.get("precision", 7), policy.get("dimensions", "delivered")
    values = to_wgs84(code, position.values)
    x, y = grid(values[0], p), grid(values[1], p)
    for ordinate, bound, i in ((x[0], 180, 0), (y[0], 90, 1)):
        if abs(ordinate) > bound * 10**p:
            raise Refused("geojson_bounds", f"{position.at}/{i}")
    if len(values) == 2 or dimensions == 2:
        return (x[0], y[0]), (x[1], y[1])
    z = grid(values[2], policy.get("precision_z", 3))
    if abs(z[0]) >= 10**15:
        raise Refused("geojson_elevation", f"{position.at}/2")
    return (x[0], y[0], z[0]), (x[1], y[1], z[1])


def is_rounded(body: Any, policy: dict[str, Any], code: int) -> bool:
    """Section 4: whether any kept ordinate was not on the grid already, so that there is an alias."""
    if isinstance(body, Geo):
        return is_rounded(body.body, policy, code)
    if not isinstance(body, Position):
        return any(is_rounded(item, policy, code) for item in body)
    p, p_z = policy.get("precision", 7), policy.get("precision_z", 3)
    places = (p, p) if policy.get("dimensions") == 2 else (p, p, p_z)
    decimals = (Decimal(repr(value)).normalize() for value in to_wgs84(code, body.values))
    return any(value and int(value.as_tuple().exponent) < -place for value, place in zip(decimals, places))


def turn_point(position: tuple[int, ...], p: int) -> tuple[int, ...]:
    """Section 5: one spelling for the antimeridian and for the poles."""
    x, y, *rest = position
    if x == -180 * 10**p:
        x = 180 * 10**p
    if abs(y) == 90 * 10**p:
        x = 0
    return (x, y, *rest)


# --- 6 Positions of paths, 7 Rings ----------------------------------------------------------------------------------

def open_ring(ring: list[Any], close: bool, at: str, warnings: list[str]) -> list[Any]:
    """A ring of (half-even, tie-safe) pairs without its closing position."""
    closed = ring[0][0] == ring[-1][0] or ring[0][1] == ring[-1][1]
    if len(ring) < (3 if close and not closed else 4):
        raise Refused("geojson_ring_short", at)
    if closed:
        return ring[:-1]
    if not close:
        raise Refused("geojson_ring_unclosed", at)
    warnings.append("ring_closed")
    return ring


def merge(path: list[Any], cyclic: bool) -> list[Any]:
    out = [p for i, p in enumerate(path) if i == 0 or p != path[i - 1]]
    while cyclic and len(out) > 1 and out[-1] == out[0]:
        out.pop()
    return out


def twice_area(ring: list[Any]) -> int:
    return sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(ring, ring[1:] + ring[:1]))


def least_rotation(ring: list[Any]) -> list[Any]:
    lowest = min(ring)
    return min(ring[i:] + ring[:i] for i, position in enumerate(ring) if position == lowest)


def canonical_ring(ring: list[Any], exterior: bool) -> list[Any]:
    """An open, merged ring in its direction, at its least rotation, closed."""
    area = twice_area(ring)
    if area == 0:
        ring = min(least_rotation(ring), least_rotation(ring[::-1]))
    else:
        ring = least_rotation(ring if (area > 0) == exterior else ring[::-1])
    return [*ring, ring[0]]


# --- 8 Order --------------------------------------------------------------------------------------------------------

def canonical_geometry(geo: Geo, policy: dict[str, Any], code: int, warnings: list[str]) -> tuple[Any, Any]:
    """Steps 2 to 8: (type, coordinates) on each of the two grids; coordinates are grid values."""
    if geo.type == COLLECTION:
        both = [m for inner in geo.body for m in flattened(inner, policy, code, warnings)]
        members = [[m[g] for m in both] for g in (0, 1)]
        if policy.get("parts", "sorted") == "sorted":
            members = [sorted(m) for m in members]
        return (COLLECTION, members[0]), (COLLECTION, members[1])
    body = snap_all(geo.body, policy, code)
    close = policy.get("close_rings", False)
    here = f"{geo.at}/coordinates"
    if geo.type == "Polygon":
        body = [open_ring(r, close, f"{here}/{i}", warnings) for i, r in enumerate(body)]
    if geo.type == "MultiPolygon":
        body = [[open_ring(r, close, f"{here}/{i}/{j}", warnings) for j, r in enumerate(part)]
                for i, part in enumerate(body)]
    even = canonical_parts(geo.type, choose(body, 0), policy, warnings)
    return even, canonical_parts(geo.type, choose(body, 1), policy, [])


def flattened(geo: Geo, policy: dict[str, Any], code: int, warnings: list[str]) -> list[tuple[Any, Any]]:
    if geo.type == COLLECTION:
        return [m for inner in geo.body for m in flattened(inner, policy, code, warnings)]
    return [canonical_geometry(geo, policy, code, warnings)]


def snap_all(body: Any, policy: dict[str, Any], code: int) -> Any:
    if isinstance(body, Position):
        return snap(body, policy, code)
    return [snap_all(item, policy, code) for item in body]


def choose(body: Any, which: int) -> Any:
    """One of the two grids out of nested (half-even, tie-safe) pairs."""
    return body[which] if isinstance(body, tuple) else [choose(item, which) for item in body]


def thinned(path: list[Any], cyclic: bool) -> list[Any]:
    """Shape "simplified": the path without vertices that add nothing but density, found again after each one."""
    path = list(path)
    while len(path) > (3 if cyclic else 2):
        candidates = []
        for i in range(0 if cyclic else 1, len(path) if cyclic else len(path) - 1):
            (px, py), (x, y), (qx, qy) = path[i - 1], path[i], path[(i + 1) % len(path)]
            area = abs((px - x) * (qy - y) - (py - y) * (qx - x))
            near = area**2 < 4 * ((qx - px)**2 + (qy - py)**2)
            if near and (px - x) * (qx - x) + (py - y) * (qy - y) < 0:
                candidates.append((area, x, y, i))
        if not candidates:
            break
        del path[min(candidates)[3]]
    return path


def box_of(body: Any) -> list[int]:
    """West, south, east, north of nested positions."""
    if isinstance(body, tuple):
        return [body[0], body[1], body[0], body[1]]
    boxes = [box_of(item) for item in body]
    return [*(min(b[i] for b in boxes) for i in (0, 1)), *(max(b[i] for b in boxes) for i in (2, 3))]


def canonical_parts(name: str, body: Any, policy: dict[str, Any], warnings: list[str]) -> tuple[str, Any]:
    def point(position: tuple[int, ...]) -> Any:
        return turn_point(position, policy.get("precision", 7))

    def line(path: list[Any]) -> Any:
        path = merge(path, False)
        if len(path) == 1:
            warnings.append("collapsed")
        path = directed(path)
        return directed(thinned(path, False)) if policy.get("shape") == "simplified" else path

    def directed(path: list[Any]) -> list[Any]:
        return min(path, path[::-1]) if policy.get("lines", "directed") == "undirected" else path

    def polygon(rings: list[Any]) -> Any:
        rings = [merge(ring, True) for ring in rings]
        if any(twice_area(ring) == 0 for ring in rings):
            warnings.append("collapsed")
        shell, *holes = (
            reduced_ring(canonical_ring(ring, i == 0), i == 0) for i, ring in enumerate(rings))
        return [shell, *sorted(holes)]

    def reduced_ring(ring: list[Any], exterior: bool) -> list[Any]:
        if policy.get("shape") != "simplified":
            return ring
        return canonical_ring(merge(thinned(ring[:-1], True), True), exterior)

    one = {"Point": point, "LineString": line, "Polygon": polygon}
    if name in one:
        return name, one[name](body)
    parts = [one[SINGLE[name]](part) for part in body]
    if policy.get("parts", "sorted") == "sorted":
        parts.sort()
    return (SINGLE[name], parts[0]) if len(parts) == 1 else (name, parts)


# --- 9 Identity, 10 Version -----------------------------------------------------------------------------------------

def whole_payload(payload: Any, place: tuple[str, ...], is_feature: bool, ignore: list[str]) -> Any:
    """The payload without geometry, bookkeeping and what the policy ignores; `place` is where the Feature is."""
    if not is_feature and not place:
        return {}
    drop = {tokens(pointer) for pointer in ignore}
    drop |= {(*start, name) for start in ((), place, (*place, "properties")) for name in IGNORED}
    drop |= {(*place, name) for name in FEATURE_MEMBERS | (set() if is_feature else {"coordinates", "geometries"})}

    def reduced(value: Any, here: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [reduced(v, (*here, str(i))) for i, v in enumerate(value) if (*here, str(i)) not in drop]
        if not isinstance(value, dict):
            return value
        out = {k: reduced(v, (*here, k)) for k, v in value.items() if (*here, k) not in drop}
        if here == place and is_feature and not out.get("properties"):
            out.pop("properties", None)
        return out

    return reduced(payload, ())


def pointed(start: Any, fields: list[Any]) -> dict[str, Any]:
    """The values that the policy's pointers find; `start` is None for a bare geometry, which has none."""
    out: dict[str, Any] = {}
    entries = ({"at": entry} if isinstance(entry, str) else entry for entry in fields)
    for entry in sorted(entries, key=lambda entry: utf16(entry["at"])):
        found, value = find(start, entry["at"])
        if not found:
            if entry.get("optional"):
                continue
            raise Refused("identity_missing", entry["at"])
        if entry.get("decimals") is not None:
            if not isinstance(value, Number):
                raise Refused("identity_type", entry["at"])
            value = Rounded(grid(value.double(), entry["decimals"])[0], entry["decimals"])
            if abs(value.units) >= 10**15:
                raise Refused("identity_type", entry["at"])
        out[entry["at"]] = value
    return out


def normalised(value: Any, at: str) -> Any:
    """Form C for the names and strings of an identity."""
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, list):
        return [normalised(v, f"{at}/{i}") for i, v in enumerate(value)]
    if not isinstance(value, dict):
        return value
    out: dict[str, Any] = {}
    for name, inner in value.items():
        new = unicodedata.normalize("NFC", name)
        here = f"{at}/{escape_token(new)}"
        if new in out:
            raise Refused("json_duplicate_member", here)
        out[new] = normalised(inner, here)
    return out


RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|[-+](\d\d):(\d\d))", re.ASCII)


def is_date_time(text: str) -> bool:
    found = RFC3339.fullmatch(text)
    if not found:
        return False
    year, month, day, hour, minute, second, *offset = (int(g or 0) for g in found.groups())
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = [31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    return (1 <= month <= 12 and 1 <= day <= days[month - 1] and hour <= 23 and minute <= 59 and second <= 60
            and offset[0] <= 23 and offset[1] <= 59)


def version_of(start: Any, pointer: str) -> Any:
    found, value = find(start, pointer)
    if not found:
        raise Refused("version_missing", pointer)
    if isinstance(value, Number) and value.double().is_integer():
        return value
    if isinstance(value, str) and is_date_time(value):
        return value
    raise Refused("version_type", pointer)


# --- 12 Canonical bytes ---------------------------------------------------------------------------------------------

class Rounded(NamedTuple):
    """A grid value: `units` times 10^-decimals."""

    units: int
    decimals: int


def decimal_text(units: int, power: int) -> str:
    """`units`·10^`power` as ECMAScript prints numbers; integers beyond 2^53 − 1 with all their digits."""
    if units == 0:
        return "0"
    sign, digits = ("-" if units < 0 else ""), str(abs(units))
    power += len(digits) - len(digits.rstrip("0"))
    digits = digits.rstrip("0")
    n = len(digits) + power
    if power >= 0 and (n <= 21 or int(digits) * 10**power > MAX_SAFE):
        text = digits + "0" * power
    elif 0 < n <= 21:
        text = f"{digits[:n]}.{digits[n:]}"
    elif -6 < n <= 0:
        text = "0." + "0" * -n + digits
    else:
        text = digits[0] + ("." + digits[1:] if digits[1:] else "") + f"e{n - 1:+d}"
    return sign + text


def number_text(number: Number) -> str:
    exact = number.integer()
    if exact is not None and abs(exact) > MAX_SAFE:
        return str(exact)
    sign, digits, exponent = Decimal(repr(number.double())).as_tuple()
    units = int("".join(map(str, digits)))
    return decimal_text(-units if sign else units, int(exponent))


SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def string_text(text: str) -> str:
    return '"' + "".join(SHORT.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'


def utf16(name: str) -> bytes:
    """The order of names: by UTF-16 code units."""
    return name.encode("utf-16-be")


def jcs(value: Any) -> str:
    """RFC 8785, with this specification's numbers."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, Number):
        return number_text(value)
    if isinstance(value, Rounded):
        return decimal_text(value.units, -value.decimals)
    if isinstance(value, int):
        return decimal_text(value, 0)
    if isinstance(value, list):
        return "[" + ",".join(map(jcs, value)) + "]"
    ordered = sorted(value.items(), key=lambda item: utf16(item[0]))
    return "{" + ",".join(f"{string_text(k)}:{jcs(v)}" for k, v in ordered) + "}"


def geometry_value(shape: Any, policy: dict[str, Any]) -> Any:
    """The canonical geometry as a JSON value."""
    def coordinates(body: Any) -> Any:
        if isinstance(body, tuple):
            decimals = (policy.get("precision", 7), policy.get("precision", 7), policy.get("precision_z", 3))
            return [Rounded(units, p) for units, p in zip(body, decimals)]
        return [coordinates(item) for item in body]

    if shape is None:
        return None
    name, body = shape
    if policy.get("shape") == "bbox":
        places = [m[1] for m in body] if name == COLLECTION else body
        return {"bbox": [Rounded(edge, policy.get("precision", 7)) for edge in box_of(places)], "type": name}
    if name == COLLECTION:
        return {"geometries": [geometry_value(m, policy) for m in body], "type": name}
    return {"coordinates": coordinates(body), "type": name}


def digest(value: Any, policy: dict[str, Any]) -> Digest:
    canonical, secret = jcs(value), policy.get("key_secret")
    data = canonical.encode()
    if secret is None:
        return Digest(canonical, hashlib.sha256(data).hexdigest(), False)
    return Digest(canonical, hmac.new(secret.encode(), data, hashlib.sha256).hexdigest(), True)


# --- The whole, with 13 Delivery ids and 14 Predecessor -------------------------------------------------------------

class Payload(NamedTuple):
    """What was read: the geometry, its declared system, and where identity comes from."""

    geo: Geo | None
    code: int | None
    value: Any
    place: tuple[str, ...]
    is_feature: bool
    crs_at: str = ""


def read_json(data: bytes, policy: dict[str, Any]) -> Payload:
    value = Reader(data).document()
    at = policy.get("feature") or ""
    found, feature = find(value, at)
    if not found:
        raise Refused("geojson_missing", at)
    if not isinstance(feature, dict):
        raise Refused("geojson_not_object", at)
    is_feature = type_of(feature, at) == "Feature"
    geometry, here = feature, at
    codes = [declared(feature, at)]
    if is_feature:
        check_object(feature, at, ("coordinates", "geometries", "features"))
        if not isinstance(feature.get("id", ""), (str, Number)):
            raise Refused("geojson_id", f"{at}/id")
        if not isinstance(feature.get("properties"), (dict, type(None))):
            raise Refused("geojson_member_type", f"{at}/properties")
        geometry, here = member(feature, "geometry", at), f"{at}/geometry"
        if geometry is None:
            if "null" not in policy.get("accept", {}).get("types", []):
                raise Refused("geojson_null_geometry", here)
            return Payload(None, None, value, tokens(at), True)
        if isinstance(geometry, dict):
            codes.append(declared(geometry, here))
    geo = read_geometry(geometry, here)
    check_accepted(geo, policy)
    codes = [c for c in codes if c is not None]
    if len(set(codes)) > 1:
        raise Refused("crs_conflict", f"{here}/crs")
    crs_at = f"{at}/crs" if "crs" in feature else f"{here}/crs" if codes else ""
    return Payload(geo, codes[0] if codes else None, value, tokens(at), is_feature, crs_at)


def check_accepted(geo: Geo, policy: dict[str, Any]) -> None:
    if geo.type not in policy.get("accept", {}).get("types", [geo.type]):
        raise Refused("accept_type", f"{geo.at}/type")


def read(form: str, payload: str | bytes, policy: dict[str, Any]) -> Payload:
    if form == "json":
        return read_json(payload.encode() if isinstance(payload, str) else payload, policy)
    try:
        reader = WktReader(payload) if form == "wkt" else WkbReader(bytes.fromhex(payload))
    except ValueError:
        raise Refused("wkb_syntax") from None
    geo = reader.document()
    check_accepted(geo, policy)
    return Payload(geo, crs_code(str(reader.srid), "") if reader.srid else None, {}, (), False)


def forms(payload: Payload, policy: dict[str, Any], warnings: list[str]) -> tuple[Digest, Digest | None]:
    """Key and alias under one policy."""
    even = safe = None
    rounded = False
    if payload.geo:
        check_lengths(payload.geo, policy.get("dimensions"))
        assumed = str(policy.get("crs", "EPSG:4326"))
        if payload.code is None and assumed == "required":
            raise Refused("crs_missing")
        code = crs_code(assumed, "") if payload.code is None else payload.code
        if known_crs(code, payload.crs_at) in APPROXIMATE:
            raise Refused("crs_approximate", payload.crs_at)
        even, safe = canonical_geometry(payload.geo, policy, code, warnings)
        rounded = is_rounded(payload.geo, policy, code)
    bare = not payload.is_feature and not payload.place
    start = None if bare else payload.value
    identity = (pointed(start, policy["identity"]) if policy.get("identity") else
                whole_payload(payload.value, payload.place, payload.is_feature, policy.get("ignore", [])))
    if policy.get("unicode", "exact") == "nfc":
        identity = (({k: normalised(v, k) for k, v in identity.items()}) if policy.get("identity")
                    else normalised(identity, ""))
    value = {"geometry": geometry_value(even, policy), "identity": identity, "scope": policy.get("scope", "default"),
             "spec": "g1"}
    if policy.get("shape", "exact") != "exact":
        value["shape"] = policy["shape"]
    if policy.get("version"):
        value["version"] = version_of(start, policy["version"])
    alias = {**value, "geometry": geometry_value(safe, policy), "grid": "5/11"}
    return digest(value, policy), digest(alias, policy) if rounded else None


def key(payload: str | bytes, policy: dict[str, Any] | None = None, form: str = "json") -> Keyed:
    """The key of a payload, and its aliases."""
    policy = policy or {}
    warnings: list[str] = []
    first, alias = forms(read(form, payload, policy), policy, warnings)
    aliases = [alias] if alias else []
    if policy.get("previous") is not None:
        try:
            before = forms(read(form, payload, policy["previous"]), policy["previous"], [])
            aliases += [d for d in before if d]
        except Refused:
            warnings.append("previous_refused")
    unique = {d.text(): d for d in aliases if d.text() != first.text()}
    return Keyed(first, list(unique.values()), warnings)


def delivery(by: str, sender_id: str, index: int, policy: dict[str, Any]) -> Digest:
    """Section 13: the key of a delivery id."""
    if not 1 <= len(sender_id.encode()) <= 255:
        raise Refused("identity_type")
    return digest({"delivery": {"by": by, "id": sender_id}, "index": index, "scope": policy.get("scope", "default"),
                   "spec": "g1"}, policy)


# --- 15 Assembly ----------------------------------------------------------------------------------------------------

def assemble(rings: list[list[tuple[int, ...]]]) -> list[list[list[tuple[int, ...]]]]:
    """Rings on the grid, side by side, into polygons."""
    if not rings:
        raise Refused("geojson_empty")
    for i, ring in enumerate(rings):
        if not ring:
            raise Refused("geojson_empty", f"/{i}")
        if ring[0][:2] != ring[-1][:2]:
            raise Refused("geojson_ring_unclosed", f"/{i}")
        if any(abs(n) > 2**52 for position in ring for n in position):
            raise Refused("geojson_bounds", f"/{i}")
    areas = [twice_area(ring[:-1]) if len(ring) > 1 else 0 for ring in rings]

    def rank(i: int) -> Any:
        return abs(areas[i]), least_rotation(merge(rings[i][:-1] or rings[i], True))

    askable = sorted((i for i, area in enumerate(areas) if area < 0), key=rank)
    holes: dict[int, list[int]] = {i: [] for i, area in enumerate(areas) if area <= 0}
    for i, area in enumerate(areas):
        if area > 0:
            owner = next((s for s in askable if contains(rings[s], rings[i])), None)
            if owner is None:
                holes[i] = []
            else:
                holes[owner].append(i)
    return [[rings[s], *(rings[h] for h in sorted(holes[s]))] for s in sorted(holes)]


def contains(shell: list[Any], hole: list[Any]) -> bool:
    """Rule 5, on doubled coordinates."""
    outer, inner = ([(2 * p[0], 2 * p[1]) for p in ring] for ring in (shell, hole))
    for axis in (0, 1):
        low, high = min(p[axis] for p in outer), max(p[axis] for p in outer)
        if not all(low <= p[axis] <= high for p in inner):
            return False
    midpoints = [((a[0] + b[0]) // 2, (a[1] + b[1]) // 2) for a, b in zip(inner, inner[1:])]
    for point in [*sorted(inner), *sorted(midpoints)]:
        where = locate(point, outer)
        if where != "boundary":
            return where == "inside"
    return True


def locate(point: tuple[int, int], ring: list[tuple[int, int]]) -> str:
    """Whether a point is inside, outside or on the boundary of a closed ring."""
    x, y = point
    inside = False
    for (ax, ay), (bx, by) in zip(ring, ring[1:]):
        cross = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
        if cross == 0 and min(ax, bx) <= x <= max(ax, bx) and min(ay, by) <= y <= max(ay, by):
            return "boundary"
        if (ay > y) != (by > y) and (cross > 0) == (by > ay):
            inside = not inside
    return "inside" if inside else "outside"
