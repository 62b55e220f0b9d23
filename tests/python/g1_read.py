"""Section 1 of docs/key-spec.md: JSON, GeoJSON, WKT and WKB, read strictly. A part of g1.py."""

from __future__ import annotations

import math
import re
import struct
from typing import Any, Callable, Iterator, NamedTuple

MAX_DEPTH = 64
NESTING = {"Point": 0, "MultiPoint": 1, "LineString": 1, "MultiLineString": 2, "Polygon": 2, "MultiPolygon": 3}
COLLECTION = "GeometryCollection"
SINGLE = {"MultiPoint": "Point", "MultiLineString": "LineString", "MultiPolygon": "Polygon"}


class Refused(Exception):
    """A payload that has no key: `code` says why, `pointer` says where."""

    def __init__(self, code: str, pointer: str = "") -> None:
        super().__init__(f"{code} at {pointer!r}")
        self.code, self.pointer = code, pointer


class Number(NamedTuple):
    """A JSON number as it was spelled."""

    text: str

    def double(self) -> float:
        return float(self.text)

    def integer(self) -> int | None:
        """The exact value of the text if it is an integer, whatever its spelling."""
        sign, whole, fraction, exponent = re.fullmatch(
            r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([-+]?\d+))?", self.text).groups(default="")
        digits = (whole + fraction).lstrip("0")
        if not digits:
            return 0
        trimmed = digits.rstrip("0")
        power = int(exponent or 0) - len(fraction) + len(digits) - len(trimmed)
        return int(sign + trimmed) * 10**power if power >= 0 else None


class Geo(NamedTuple):
    """A geometry as delivered: positions nested as in GeoJSON, or the members of a collection."""

    type: str
    body: list[Any]
    at: str


class Position(NamedTuple):
    """Two or three doubles, and where they were."""

    values: tuple[float, ...]
    at: str


# --- 1 Reading: JSON ------------------------------------------------------------------------------------------------

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def escape_token(token: str) -> str:
    return token.replace("~", "~0").replace("/", "~1")


def tokens(pointer: str) -> tuple[str, ...]:
    """The reference tokens of an RFC 6901 pointer."""
    return tuple(t.replace("~1", "/").replace("~0", "~") for t in pointer.split("/")[1:])


class Reader:
    """RFC 8259, strictly. Numbers keep their text."""

    def __init__(self, data: bytes) -> None:
        if data.startswith(b"\xef\xbb\xbf"):
            raise Refused("json_bom")
        try:
            self.text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise Refused("json_utf8") from None
        self.i = 0

    def document(self) -> Any:
        value = self.value("", 1)
        self.space()
        if self.i < len(self.text):
            raise Refused("json_trailing")
        return value

    def space(self) -> None:
        while self.i < len(self.text) and self.text[self.i] in " \t\n\r":
            self.i += 1

    def next(self, at: str) -> str:
        """The next character that is no white space, not yet consumed."""
        self.space()
        if self.i >= len(self.text):
            raise Refused("json_incomplete", at)
        return self.text[self.i]

    def value(self, at: str, depth: int) -> Any:
        first = self.next(at)
        if first in "{[" and depth > MAX_DEPTH:
            raise Refused("limit_depth", at)
        if first == "{":
            return self.object(at, depth)
        if first == "[":
            return self.array(at, depth)
        if first == '"':
            return self.string(at)
        for word, meaning in (("true", True), ("false", False), ("null", None)):
            if self.text.startswith(word, self.i):
                self.i += len(word)
                return meaning
            if word.startswith(self.text[self.i:self.i + 5]):
                raise Refused("json_incomplete", at)
        return self.number(at)

    def number(self, at: str) -> Number:
        found = NUMBER.match(self.text, self.i)
        if not found:
            raise Refused("json_incomplete" if self.text[self.i:self.i + 2] == "-" else "json_syntax", at)
        self.i = found.end()
        text, rest = found.group(), self.text[self.i:self.i + 3].lower()
        goes_on = rest[:1] == "." and text.lstrip("-").isdigit() or rest[:1] == "e" and "e" not in text.lower()
        if goes_on and rest in (".", "e", "e+", "e-"):
            raise Refused("json_incomplete", at)
        if goes_on or rest[:1] in tuple("0123456789"):
            raise Refused("json_syntax", at)
        if math.isinf(float(text)):
            raise Refused("json_number_range", at)
        return Number(text)

    def object(self, at: str, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self.i += 1
        if self.next(at) == "}":
            self.i += 1
            return members
        while True:
            if self.next(at) != '"':
                raise Refused("json_syntax", at)
            name = self.string(at)
            here = f"{at}/{escape_token(name)}"
            if name in members:
                raise Refused("json_duplicate_member", here)
            if self.next(at) != ":":
                raise Refused("json_syntax", at)
            self.i += 1
            members[name] = self.value(here, depth + 1)
            if self.more(at, "}"):
                return members

    def array(self, at: str, depth: int) -> list[Any]:
        items: list[Any] = []
        self.i += 1
        if self.next(f"{at}/0") == "]":
            self.i += 1
            return items
        while True:
            items.append(self.value(f"{at}/{len(items)}", depth + 1))
            if self.more(at, "]"):
                return items

    def more(self, at: str, end: str) -> bool:
        """Behind an element: consumes the comma (false) or the closing bracket (true)."""
        character = self.next(at)
        if character not in (",", end):
            raise Refused("json_syntax", at)
        self.i += 1
        return character == end

    def string(self, at: str) -> str:
        out: list[str] = []
        self.i += 1
        while True:
            character = self.take(at)
            if character == '"':
                return "".join(out)
            if character < " ":
                raise Refused("json_control_character", at)
            if character != "\\":
                out.append(character)
                continue
            letter = self.take(at)
            if letter == "u":
                out.append(self.unicode_escape(at))
            elif letter in ESCAPES:
                out.append(ESCAPES[letter])
            else:
                raise Refused("json_syntax", at)

    def take(self, at: str) -> str:
        if self.i >= len(self.text):
            raise Refused("json_incomplete", at)
        self.i += 1
        return self.text[self.i - 1]

    def hex4(self, at: str) -> int:
        digits = "".join(self.take(at) for _ in range(4))
        if not re.fullmatch("[0-9a-fA-F]{4}", digits):
            raise Refused("json_syntax", at)
        return int(digits, 16)

    def unicode_escape(self, at: str) -> str:
        unit = self.hex4(at)
        if 0xD800 <= unit < 0xDC00 and self.text.startswith("\\u", self.i):
            self.i += 2
            low = self.hex4(at)
            if 0xDC00 <= low < 0xE000:
                return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00))
            raise Refused("json_lone_surrogate", at)
        if 0xD800 <= unit < 0xE000:
            raise Refused("json_lone_surrogate", at)
        return chr(unit)


def find(value: Any, pointer: str) -> tuple[bool, Any]:
    """RFC 6901: whether the pointer finds something, and what."""
    for token in tokens(pointer):
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif isinstance(value, list) and re.fullmatch("0|[1-9][0-9]*", token) and int(token) < len(value):
            value = value[int(token)]
        else:
            return False, None
    return True, value


# --- 1 Reading: GeoJSON ---------------------------------------------------------------------------------------------

def member(value: dict[str, Any], name: str, at: str) -> Any:
    if name not in value:
        raise Refused("geojson_missing", f"{at}/{name}")
    return value[name]


def check_object(value: Any, at: str, forbidden: tuple[str, ...]) -> None:
    """Members that section 7.1 of RFC 7946 keeps for other types, and `bbox`."""
    for name in forbidden:
        if name in value:
            raise Refused("geojson_foreign_member", f"{at}/{name}")
    if "bbox" in value:
        box = value["bbox"]
        if not (isinstance(box, list) and len(box) in (4, 6) and all(isinstance(n, Number) for n in box)):
            raise Refused("geojson_bbox", f"{at}/bbox")


def type_of(value: dict[str, Any], at: str) -> str:
    name = value.get("type")
    if not isinstance(name, str):
        raise Refused("geojson_type", f"{at}/type")
    return name


def read_geometry(value: Any, at: str) -> Geo:
    if not isinstance(value, dict):
        raise Refused("geojson_member_type", at)
    name = type_of(value, at)
    if name == COLLECTION:
        check_object(value, at, ("geometry", "properties", "features"))
        members, here = member(value, "geometries", at), f"{at}/geometries"
        if not isinstance(members, list):
            raise Refused("geojson_member_type", here)
        if not members:
            raise Refused("geojson_empty", here)
        for i, inner in enumerate(members):
            if isinstance(inner, dict) and "crs" in inner:
                raise Refused("crs_ambiguous", f"{here}/{i}/crs")
        return Geo(name, [read_geometry(m, f"{here}/{i}") for i, m in enumerate(members)], at)
    if name not in NESTING:
        raise Refused("geojson_type", f"{at}/type")
    check_object(value, at, ("geometry", "properties", "features"))
    here = f"{at}/coordinates"
    return Geo(name, read_nested(member(value, "coordinates", at), here, NESTING[name]), at)


def read_nested(value: Any, at: str, nesting: int) -> Any:
    if not isinstance(value, list):
        raise Refused("geojson_coordinates", at)
    if not value:
        raise Refused("geojson_empty", at)
    if nesting == 0:
        if len(value) not in (2, 3):
            raise Refused("geojson_position", at)
        for i, number in enumerate(value):
            if not isinstance(number, Number):
                raise Refused("geojson_coordinates" if isinstance(number, list) else "geojson_position", f"{at}/{i}")
        return Position(tuple(n.double() for n in value), at)
    return [read_nested(v, f"{at}/{i}", nesting - 1) for i, v in enumerate(value)]


def positions(body: Any) -> Iterator[Position]:
    if isinstance(body, Position):
        yield body
    elif isinstance(body, Geo):
        yield from positions(body.body)
    else:
        for item in body:
            yield from positions(item)


def check_lengths(geo: Geo, dimensions: Any) -> None:
    """Positions of one length in the whole geometry, lines of two positions; rings are checked on the grid."""
    every = list(positions(geo))
    if dimensions == 3 and len(every[0].values) != 3:
        while geo.type == COLLECTION:
            geo = geo.body[0]
        is_point = geo.type in ("Point", "MultiPoint")
        raise Refused("geojson_dimensions", every[0].at if is_point else every[0].at.removesuffix("/0"))
    for position in every:
        if len(position.values) != len(every[0].values):
            raise Refused("geojson_dimensions", position.at)
    for line, at in lines(geo):
        if len(line) < 2:
            raise Refused("geojson_line_short", at)


def lines(geo: Geo) -> Iterator[tuple[list[Position], str]]:
    """All lines of a geometry."""
    if geo.type == COLLECTION:
        for inner in geo.body:
            yield from lines(inner)
    elif geo.type == "LineString":
        yield geo.body, f"{geo.at}/coordinates"
    elif geo.type == "MultiLineString":
        yield from ((line, f"{geo.at}/coordinates/{i}") for i, line in enumerate(geo.body))


# --- 1 Reading: WKT and WKB -----------------------------------------------------------------------------------------

WKT_TYPES = {name.upper(): name for name in (*NESTING, COLLECTION)}
WKB_TYPES = ["", "Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon", COLLECTION]


class WktReader:
    """WKT and EWKT; the dimension is a word (`Z`), part of the type (`POINTZ`) or the number of numbers."""

    def __init__(self, text: str) -> None:
        head = re.match(r"\s*SRID\s*=\s*(\d+)\s*;", text, re.IGNORECASE)
        self.srid = int(head[1]) if head else None
        rest = text[head.end():] if head else text
        self.words = re.findall(r"[A-Za-z]+|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[^\s]", rest)

    def document(self) -> Geo:
        geo = self.geometry("")
        if self.words:
            raise Refused("wkt_syntax")
        return geo

    def take(self, *wanted: str) -> str:
        if not self.words or (wanted and self.words[0].upper() not in wanted):
            raise Refused("wkt_syntax")
        return self.words.pop(0)

    def geometry(self, at: str) -> Geo:
        word = self.take().upper()
        if word not in WKT_TYPES:
            if word.rstrip("ZM") in WKT_TYPES:
                self.words.insert(0, word[len(word.rstrip("ZM")):])
                word = word.rstrip("ZM")
            else:
                raise Refused("wkt_syntax")
        name, flag = WKT_TYPES[word], ""
        if self.words and self.words[0].upper() in ("Z", "M", "ZM"):
            flag = self.take().upper()
        if "M" in flag:
            raise Refused("geojson_measure", at)
        if name == COLLECTION:
            self.refuse_empty(f"{at}/geometries/0")
            return Geo(name, self.listed(lambda i: self.geometry(f"{at}/geometries/{i}")), at)
        here = f"{at}/coordinates"
        if name == "Point":
            self.refuse_empty(here)
            self.take("(")
            body: Any = self.position(here)
            self.take(")")
        else:
            body = self.nested(here, NESTING[name], name == "MultiPoint")
        geo = Geo(name, body, at)
        for position in positions(geo):
            if flag == "Z" and len(position.values) != 3:
                raise Refused("wkt_syntax")
            if len(position.values) > 3:
                raise Refused("geojson_measure", at)
        return geo

    def refuse_empty(self, at: str) -> None:
        """`at` is where the next position would stand in GeoJSON."""
        if self.words and self.words[0].upper() == "EMPTY":
            raise Refused("geojson_empty", at)

    def listed(self, element: Callable[[int], Any]) -> list[Any]:
        self.take("(")
        items = [element(0)]
        while self.take(",", ")") == ",":
            items.append(element(len(items)))
        return items

    def nested(self, at: str, nesting: int, points: bool) -> Any:
        self.refuse_empty(at + "/0" * nesting)
        if nesting:
            return self.listed(lambda i: self.nested(f"{at}/{i}", nesting - 1, points))
        if points and self.words and self.words[0] == "(":
            self.take("(")
            position = self.position(at)
            self.take(")")
            return position
        return self.position(at)

    def position(self, at: str) -> Position:
        values: list[float] = []
        while self.words and re.fullmatch(r"[-+.]?\d.*", self.words[0], re.ASCII):
            values.append(float(self.words.pop(0)))
        if len(values) == 1:
            raise Refused("geojson_position", at)
        if not values or not all(map(math.isfinite, values)):
            raise Refused("wkt_syntax", at)
        return Position(tuple(values), at)


class WkbReader:
    """WKB (ISO types 1000, 2000, 3000) and EWKB (flags)."""

    def __init__(self, data: bytes) -> None:
        self.data, self.i, self.srid = data, 0, None

    def document(self) -> Geo:
        geo = self.geometry("")
        if self.i != len(self.data):
            raise Refused("wkb_syntax")
        return geo

    def take(self, layout: str) -> Any:
        size = struct.calcsize(layout)
        if self.i + size > len(self.data):
            raise Refused("wkb_syntax")
        self.i += size
        return struct.unpack_from(layout, self.data, self.i - size)

    def geometry(self, at: str, place: str | None = None) -> Geo:
        """A geometry at the pointer `at`, whose coordinates stand at `place`."""
        here = f"{at}/coordinates" if place is None else place
        order = {0: ">", 1: "<"}.get(self.take("B")[0])
        if order is None:
            raise Refused("wkb_syntax", at)
        code = self.take(order + "I")[0]
        if code & 0x20000000:
            srid = self.take(order + "i")[0]
            if self.srid not in (None, srid):
                raise Refused("crs_conflict", at if place is None else place)
            self.srid = srid
        thousand, base = divmod(code & 0x1FFFFFFF, 1000)
        if not 1 <= base <= 7 or thousand > 3:
            raise Refused("geojson_type", at)
        if code & 0x40000000 or thousand >= 2:
            raise Refused("geojson_measure", at)
        size = 3 if code & 0x80000000 or thousand == 1 else 2
        name = WKB_TYPES[base]
        if name in ("Point", "LineString", "Polygon"):
            return Geo(name, self.nested(order, size, here, NESTING[name]), at)
        count = self.take(order + "I")[0]
        if name == COLLECTION:
            here = f"{at}/geometries"
            if not count:
                raise Refused("geojson_empty", f"{here}/0")
            return Geo(name, [self.geometry(f"{here}/{i}") for i in range(count)], at)
        if not count:
            raise Refused("geojson_empty", here + "/0" * NESTING[name])
        members = [self.geometry(at, f"{here}/{i}") for i in range(count)]
        if any(m.type != SINGLE[name] for m in members):
            raise Refused("wkb_syntax", at)
        return Geo(name, [m.body for m in members], at)

    def nested(self, order: str, size: int, at: str, nesting: int) -> Any:
        if not nesting:
            return self.position(order, size, at)
        count = self.take(order + "I")[0]
        if not count:
            raise Refused("geojson_empty", at + "/0" * nesting)
        return [self.nested(order, size, f"{at}/{i}", nesting - 1) for i in range(count)]

    def position(self, order: str, size: int, at: str) -> Position:
        values = self.take(order + "d" * size)
        if all(map(math.isnan, values)):
            raise Refused("geojson_empty", at)
        if not all(map(math.isfinite, values)):
            raise Refused("wkb_syntax", at)
        return Position(values, at)
