"""Senders as they are: many connections, deliveries repeated, retried until they are acknowledged."""

import asyncio
import json
import math
import random
import time

ANSWER_SECONDS_MAX = 15
RETRY_PAUSE_SECONDS = 0.005
RING_VERTICES = 9
BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, asyncio.LimitOverrunError, ValueError)


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


class Connection:
    """A keep-alive connection; one request at a time."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int, address: str = "127.0.0.1") -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20, local_addr=(address, 0)))

    def begin(self, body: bytes, path: str = "/in/default", media: str = "application/geo+json", **more: str) -> None:
        headers = {
            "content-type": media,
            "content-length": str(len(body)),
            **{k.replace("_", "-"): v for k, v in more.items()},
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.writer.write(f"POST {path} HTTP/1.1\r\nhost: faults\r\n{head}\r\n".encode() + body)

    async def finish(self, seconds: float = ANSWER_SECONDS_MAX) -> Answer:
        async with asyncio.timeout(seconds):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:]) if name
            }
            if headers.get("transfer-encoding") == "chunked":
                body = await self.chunks()
            else:
                body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(head[0].split()[1]), headers, body)

    async def chunks(self) -> bytes:
        body = b""
        while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readuntil(b"\r\n")
        return body

    async def post(self, body: bytes, seconds: float = ANSWER_SECONDS_MAX, **more: str) -> Answer:
        self.begin(body, **more)
        await self.writer.drain()
        return await self.finish(seconds)

    def close(self) -> None:
        self.writer.close()


def feature(number: int, turn: int = 0) -> bytes:
    """The event of this number: a point or a polygon. `turn` writes the same event otherwise."""
    rng = random.Random(number)
    x, y = rng.uniform(-170, 170), rng.uniform(-80, 80)
    properties = {"n": number, "kind": rng.choice(["valve", "hydrant", "zone"]), "level": round(rng.uniform(0, 9), 2)}
    if number % 4:
        geometry = {"type": "Point", "coordinates": [round(x, 7), round(y, 7)]}
    else:
        angles = [2 * math.pi * i / RING_VERTICES for i in range(RING_VERTICES)]
        ring = [[round(x + 0.01 * math.cos(a), 7), round(y + 0.01 * math.sin(a), 7)] for a in angles]
        start = turn % RING_VERTICES
        ring = ring[start:] + ring[:start]
        geometry = {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}
    if turn % 2:
        properties = dict(reversed(properties.items()))
        return json.dumps({"properties": properties, "geometry": geometry, "type": "Feature"}).encode()
    return json.dumps(
        {"type": "Feature", "geometry": geometry, "properties": properties}, separators=(",", ":")
    ).encode()


class Traffic:
    """Events, and what was promised about each of them."""

    def __init__(self, port: int | list[int], seed: int, redelivered: float = 0.2, provisional: bool = False):
        self.ports = [port] if isinstance(port, int) else port
        self.rng, self.redelivered, self.provisional = random.Random(seed), redelivered, provisional
        self.numbers = 0
        self.deliveries = 0
        self.acknowledged: dict[int, str] = {}
        # Every event that a number was said to be; more than one only where answers are provisional.
        self.names: dict[int, set[str]] = {}
        self.accepted: set[int] = set()
        # Events that were acknowledged and have no number.
        self.others: set[str] = set()
        self.wrong: list[str] = []
        self.latencies: list[float] = []
        self.postponed = 0
        self.over = False
        self.last_acknowledged = 0.0

    def next(self) -> int:
        if self.numbers and self.rng.random() < self.redelivered:
            return self.rng.randrange(max(0, self.numbers - 2_000), self.numbers)
        self.numbers += 1
        return self.numbers - 1

    def record(self, number: int, answer: Answer) -> None:
        """Holds a 2xx answer against what was promised before."""
        told = answer.json()
        outcome, known = told.get("outcome"), self.acknowledged.get(number)
        event = told.get("event") if outcome == "accepted" else told.get("of")
        replayed = answer.headers.get("idempotent-replayed") == "true"
        if (answer.status, outcome, replayed) not in ((202, "accepted", False), (200, "duplicate", True)) or not event:
            self.wrong.append(f"event {number}: {answer.status} {answer.body!r}")
        elif not self.provisional and (known not in (None, event) or (outcome == "accepted" and number in self.accepted)):
            self.wrong.append(f"event {number} was {known}, then {answer.body!r}")
        # Two deliveries may be under way at once, and the duplicate's answer be read first.
        if outcome == "accepted":
            self.accepted.add(number)
        self.acknowledged.setdefault(number, event)
        self.names.setdefault(number, set()).add(event)
        self.last_acknowledged = time.monotonic()

    async def send(self, pause: float = 0.0) -> None:
        """One sender: keeps delivering until it is over, and what it has begun until it is acknowledged."""
        connection = None
        while not self.over:
            number = self.next()
            while True:
                try:
                    connection = connection or await Connection.open(self.rng.choice(self.ports))
                    start = time.monotonic()
                    self.deliveries += 1
                    answer = await connection.post(feature(number, self.rng.randrange(64)))
                except BROKEN:
                    if connection:
                        connection.close()
                    connection = None
                    await asyncio.sleep(RETRY_PAUSE_SECONDS)
                    continue
                if answer.headers.get("connection") == "close":
                    connection.close()
                    connection = None
                if answer.status == 503:
                    self.postponed += 1
                    if "retry-after" not in answer.headers:
                        self.wrong.append("503 without Retry-After")
                    await asyncio.sleep(0.1)
                    continue
                break
            if answer.status in (200, 202):
                self.latencies.append(time.monotonic() - start)
                self.record(number, answer)
            else:
                self.wrong.append(f"event {number}: {answer.status} {answer.body[:200]!r}")
            if pause:
                await asyncio.sleep(pause)
        if connection:
            connection.close()

    async def finish(self, senders: list[asyncio.Task], seconds: float = 20) -> None:
        """Lets every sender finish what it has begun."""
        self.over = True
        done, pending = await asyncio.wait(senders, timeout=seconds)
        for task in pending:
            task.cancel()
            self.wrong.append("a delivery was not acknowledged although the gateway was up")
        for task in done:
            task.result()
