"""A fair webhook receiver on FastAPI and Redis, to stand beside the gateway: what a careful Python engineer would deploy.

uvloop, httptools, orjson, hiredis, a connection pool that blocks instead of failing; key and queue entry are written by one
script in one round trip, and the answer is sent after Redis has answered. With `appendfsync always` that means: on disk.
It checks less than the gateway does: no strict JSON, no rings, no coordinate systems, one spelling of a number.
"""

import hashlib
import os

import orjson
import redis.asyncio
from fastapi import FastAPI, Request, Response

WINDOW_SECONDS = 7 * 24 * 3600
CONNECTIONS_MAX = 64
PRECISION = 7
IGNORED = ("type", "geometry", "bbox", "received_at", "sent_at")
CLAIM = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) then
    redis.call('RPUSH', KEYS[2], ARGV[3])
    return false
end
return redis.call('GET', KEYS[1])
"""

app = FastAPI(openapi_url=None)
pool = redis.asyncio.BlockingConnectionPool.from_url(
    os.environ["REDIS_URL"], max_connections=CONNECTIONS_MAX, timeout=30
)
client = redis.asyncio.Redis(connection_pool=pool)
claim = client.register_script(CLAIM)


def rounded(value):
    """Coordinates on the grid."""
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return round(value, PRECISION)


def key_of(body: bytes) -> str:
    feature = orjson.loads(body)
    geometry = feature["geometry"]
    identity = {name: value for name, value in feature.items() if name not in IGNORED}
    canonical = [geometry["type"], rounded(geometry["coordinates"]), identity]
    return hashlib.sha256(orjson.dumps(canonical, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def told(key: str, of: bytes | None) -> dict:
    if of is None:
        return {"outcome": "accepted", "event": key, "key": key}
    return {"outcome": "duplicate", "of": of.decode(), "key": key}


def answer(status: int, body) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")


@app.post("/in/default")
async def receive(request: Request) -> Response:
    body = await request.body()
    if request.headers["content-type"] == "application/x-ndjson":
        return await receive_batch(body.splitlines())
    try:
        key = key_of(body)
    except (ValueError, KeyError, TypeError) as error:
        return answer(400, {"error": str(error)})
    of = await claim(keys=[f"key:{key}", "queue"], args=[key, WINDOW_SECONDS, body])
    return answer(202 if of is None else 200, told(key, of))


async def receive_batch(lines: list[bytes]) -> Response:
    try:
        keys = [key_of(line) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        return answer(400, {"error": str(error)})
    pipeline = client.pipeline(transaction=False)
    for key, line in zip(keys, lines):
        await claim(keys=[f"key:{key}", "queue"], args=[key, WINDOW_SECONDS, line], client=pipeline)
    known = await pipeline.execute()
    return answer(202 if None in known else 200, [told(key, of) for key, of in zip(keys, known)])


@app.get("/readyz")
async def ready() -> Response:
    await client.ping()
    return answer(200, {})
