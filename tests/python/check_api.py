#!/usr/bin/env python3
"""The API of the built gateway: who may ask, pages, jobs, the stream, and any input against its OpenAPI document.

    python tests/python/check_api.py PATH/TO/geonce

Events go to a receiver that refuses them at first, so that they die and can be replayed. Then schemathesis makes requests of all
sorts from docs/openapi.json: no answer may be a 5xx, and every one must be as the document says. At the end the books must balance.
"""

import argparse
import collections
import http.client
import http.server
import json
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "faults"))
from gateway import Gateway  # noqa: E402

DOCUMENT = ROOT / "docs" / "openapi.json"
EVENTS = 5_000
DEAD = 400
SECONDS_MAX = 30
BOOKS_OLD_SECONDS = 1.1  # a gateway answers with books that are at most a second old

# A source whose events go to a receiver of the test's.
FUSSY = """
[source.fussy]
allow_unsigned = true
sink = "portal"

[sink.portal]
url = "http://127.0.0.1:{port}/hook"
allow = ["127.0.0.1/32"]
"""
CONFIG = FUSSY + """
[source.drones]
allow_unsigned = true
invalid = "dead"
sink = "zones"

[source.sensors]
allow_unsigned = true
near = "1 cm"
sink = "zones"

[sink.zones]
url = "ndjson:zones.ndjson"
"""


class Receiver:
    """Where events go. It refuses them until it is told otherwise, and counts what it took."""

    def __init__(self):
        self.takes, self.taken = False, collections.Counter()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):  # noqa: N802
                self.rfile.read(int(self.headers["content-length"]))
                if outer.takes:
                    outer.taken[self.headers["webhook-id"]] += 1
                self.send_response(200 if outer.takes else 422)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Api:
    def __init__(self, gateway: Gateway, token: str):
        self.gateway, self.token = gateway, token

    def ask(self, method: str, path: str, body=None, **headers) -> tuple[int, dict, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=SECONDS_MAX)
        headers = {"Authorization": f"Bearer {self.token}", **{name.replace("_", "-"): text for name, text in headers.items()}}
        if body is not None:
            body, headers = json.dumps(body), {"Content-Type": "application/json", **headers}
        try:
            connection.request(method, "/api/v1" + path, body=body, headers={n: t for n, t in headers.items() if t is not None})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def get(self, path: str) -> dict:
        status, _, body = self.ask("GET", path)
        assert status == 200, (path, status, body)
        return json.loads(body)

    def post(self, path: str, body=None, status: int = 200) -> dict:
        got, _, text = self.ask("POST", path, body)
        assert got == status, (path, got, text)
        return json.loads(text)

    def wait(self, what: str, is_true) -> None:
        until = time.monotonic() + SECONDS_MAX
        while not is_true():
            assert time.monotonic() < until, f"{what}: not in {SECONDS_MAX} s"
            time.sleep(0.02)

    def settled(self) -> dict:
        """The status once nothing is ready. The books may be a second old, so only what they say later counts. What is leased is not
        waited for: a job whose gateway was killed holds its entry in the audit trail for long."""
        time.sleep(BOOKS_OLD_SECONDS)
        self.wait("what is ready is applied", lambda: self.get("/status")["states"]["ready"] == 0)
        return self.get("/status")


def send(gateway: Gateway, source: str, lines: list[str]) -> list[dict]:
    """Sends events, 500 in a request; their receipts."""
    receipts = []
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=SECONDS_MAX)
    for start in range(0, len(lines), 500):
        body = "\n".join(lines[start : start + 500])
        connection.request("POST", f"/in/{source}", body=body, headers={"Content-Type": "application/x-ndjson"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 202, (answer.status, text)
        receipts += json.loads(text)["features"]
    connection.close()
    return receipts


def point(x: float, y: float, **properties) -> str:
    geometry = {"type": "Point", "coordinates": [x, y]}
    return json.dumps({"type": "Feature", "geometry": geometry, "properties": properties})


def who_may_ask(api: Api, data: Path, log: Path) -> None:
    mode = stat.S_IMODE((data / "api.token").stat().st_mode)
    assert mode == 0o600, oct(mode)
    assert api.token not in log.read_text() and "api.token" in log.read_text()
    for headers, expected in [
        ({}, 200),
        ({"Authorization": None}, 401),
        ({"Authorization": f"Bearer {api.token[:-1]}"}, 401),
        ({"Authorization": f"Basic {api.token}"}, 401),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": f"http://127.0.0.1:{api.gateway.port}"}, 200),
    ]:
        status, answered, body = api.ask("GET", "/status", **headers)
        assert status == expected, (headers, status, body)
        assert (status == 401) == ("www-authenticate" in answered), answered
        assert "access-control-allow-origin" not in answered
    status, _, body = api.ask("GET", "/openapi.json", Authorization=None)
    assert status == 200 and json.loads(body) == json.loads(DOCUMENT.read_text())


def pages(api: Api) -> int:
    sent = send(api.gateway, "drones", [point(i % 170, i // 170, number=i) for i in range(EVENTS)])
    expected = {receipt["event"] for receipt in sent}
    seen, path, count = [], "/events?source=drones&limit=997", 0
    cursor = ""
    while cursor is not None:
        page = api.get(path + (f"&cursor={cursor}" if cursor else ""))
        seen += [event["event"] for event in page["events"]]
        cursor, count = page["next"], count + 1
    assert len(seen) == len(set(seen)) == EVENTS and set(seen) == expected, (len(seen), len(set(seen)))
    assert seen == sorted(seen, reverse=True)
    one = api.get(f"/events/{seen[0]}")
    assert [event["event"] for event in api.get(f"/events?key={one['key']}")["events"]] == [seen[0]]
    return count


def follow(api: Api, lines: list[str]) -> collections.Counter:
    """Follows what happens while events are sent; what was told, by kind."""
    connection = http.client.HTTPConnection("127.0.0.1", api.gateway.port, timeout=SECONDS_MAX)
    connection.request("GET", "/api/v1/stream", headers={"Authorization": f"Bearer {api.token}"})
    answer = connection.getresponse()
    assert answer.status == 200 and answer.getheader("content-type") == "text/event-stream"
    assert answer.readline() == b"retry: 2000\n"
    send(api.gateway, "drones", lines)
    send(api.gateway, "drones", lines[:10] + [point(1, 2, number="one more")])
    told, kind = collections.Counter(), None
    until = time.monotonic() + SECONDS_MAX
    while told["accepted"] < len(lines) + 1 or told["duplicate"] < 10 or not told["applied"]:
        assert time.monotonic() < until, told
        line = answer.readline().decode().rstrip("\n")
        if line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("data: "):
            data = json.loads(line[6:])
            if kind == "left_out":
                told.update(data)
            else:
                told[kind] += 1
                assert kind == "job" or data.get("event", data.get("of")).startswith("evt_"), data
    connection.close()
    return told


def replays(api: Api, receiver: Receiver) -> str:
    send(api.gateway, "fussy", [point(i % 170, 60 + i / 1000, number=i) for i in range(DEAD)])
    api.wait("events that are refused die", lambda: api.get("/dead?source=fussy")["events"] == DEAD)
    group = api.get("/dead?code=http_422")["groups"][0]
    assert (group["source"], group["events"], group["class"]) == ("fussy", DEAD, "schema"), group
    receiver.takes = True
    asked = {"filter": {"source": "fussy", "code": "http_422"}, "rate": 100}
    job = api.post("/replays", asked, 201)
    assert (job["state"], job["planned"], job["done"]) == ("planned", DEAD, 0), job
    assert api.get("/dead?source=fussy")["events"] == DEAD, "a plan changes nothing"
    path = f"/replays/{job['id']}"
    assert api.post(path + "/run", None, 202)["state"] == "running"
    api.wait("it goes on", lambda: api.get(path)["done"] >= 20)
    status, _, body = api.ask("DELETE", path)
    assert status == 200, body
    api.wait("it stops", lambda: api.get(path)["state"] == "cancelled")
    first = api.get(path)["done"]
    assert 20 <= first < DEAD, f"a replay at 100 a second did {first} before it could be cancelled"
    api.wait("the books know", lambda: api.get("/dead?source=fussy")["events"] == DEAD - first)
    status, _, _ = api.ask("POST", path + "/run")
    assert status == 409, status
    job = api.post("/replays", {"filter": {"source": "fussy"}}, 201)
    assert job["planned"] == DEAD - first, job
    api.post(f"/replays/{job['id']}/run", None, 202)
    api.wait("the rest is replayed", lambda: api.get(f"/replays/{job['id']}")["state"] == "done")
    api.wait("everything is taken", lambda: sum(receiver.taken.values()) == DEAD)
    assert set(receiver.taken.values()) == {1}, "an event was delivered twice"
    entries = api.get("/audit")["entries"]
    assert len(entries) >= 2, entries
    return f"{first} replayed before it was cancelled, {DEAD - first} after; {len(entries)} audit entries"


def repair(api: Api) -> str:
    """A bow tie dies, and what is made of it is applied."""
    lines = [json.dumps({"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, i], [0, 0]]]}) for i in (1, 2)]
    ids = [receipt["event"] for receipt in send(api.gateway, "drones", lines)]
    job = api.post("/repairs", {"filter": {"events": ids}}, 201)
    assert [one["valid"] for one in job["repairs"]] == [True, True], job
    api.post(f"/repairs/{job['id']}/run", None, 202)
    api.wait("it is repaired", lambda: api.get(f"/repairs/{job['id']}")["state"] == "done")
    new = [result["event"] for result in api.get(f"/repairs/{job['id']}")["results"]]
    api.wait("it is applied", lambda: all(api.get(f"/events/{event}")["outcome"] == "applied" for event in new))
    assert [api.get(f"/events/{event}")["repaired"] for event in ids] == new
    return f"{len(new)} repaired and applied"


def near(api: Api) -> str:
    """A point seven millimetres off is dropped, one two metres off is not; explain says so before, and what was found after."""
    places = [(13.4, 52.5), (13.4, 52.500000063), (13.4, 52.500018)]
    first, close, far = [json.loads(point(*place, name="hydrant")) for place in places]
    for other, expected, metres in [(close, True, 0.007), (far, False, 2.0)]:
        asked = {"a": {"payload": first}, "b": {"payload": other}, "source": "sensors"}
        answer = api.post("/explain", asked)
        (measure,) = answer["near"]["measures"]
        assert (answer["same"], answer["near"]["near"], measure["measure"]) == (False, expected, "vertex"), answer
        assert abs(measure["value"] / metres - 1) < 0.01 and measure["threshold"] == 0.01, answer
        assert answer["near"]["action"] == ("drop" if expected else None), answer
    ids = []
    for feature, outcome in [(first, "applied"), (close, "near"), (far, "applied")]:
        ids += [receipt["event"] for receipt in send(api.gateway, "sensors", [json.dumps(feature)])]
        api.wait("it is delivered", lambda: api.get(f"/events/{ids[-1]}")["state"] == "done")
        assert api.get(f"/events/{ids[-1]}")["outcome"] == outcome, (feature, outcome)
    found = api.get(f"/events/{ids[1]}")["near"]
    assert (found["of"], found["measure"], found["action"]) == (ids[0], "vertex", "drop"), found
    answer = api.post("/explain", {"a": {"event": ids[0]}, "b": {"event": ids[1]}})
    assert answer["near"]["near"] and answer["was_near"] == {"a": None, "b": found}, answer
    shown = api.gateway.command("explain", ids[0], ids[1])
    assert shown.returncode == 1 and f"{ids[1]} was near {ids[0]}, vertex 7.0 mm: dropped" in shown.stdout, shown
    shown = api.gateway.command("explain", ids[0], ids[1], "--json")
    assert json.loads(shown.stdout) == answer, "the command and the API say the same"
    return f"7 mm near, 2 m apart; {found['value'] * 1000:.1f} mm found"


def any_input(api: Api, examples: int) -> str:
    tool = Path(sys.executable).parent / "schemathesis"
    command = [
        tool, "run", DOCUMENT, "--url", f"http://127.0.0.1:{api.gateway.port}", "--header", f"Authorization: Bearer {api.token}",
        "--max-examples", examples, "--seed", 7, "--exclude-path", "/api/v1/stream", "--request-timeout", 20,
        "--exclude-checks", "positive_data_acceptance,use_after_free", "--phases", "examples,coverage,fuzzing,stateful",
        "--suppress-health-check", "all", "--warnings", "off", "--no-shrink", "--continue-on-failure",
    ]  # fmt: skip
    # Left out: that whatever fits the schema is taken (a payload may still be no GeoJSON), and that a job that was cancelled is gone.
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=folder, check=False)
    output = done.stdout.replace(api.token, "TOKEN")
    assert done.returncode == 0, f"schemathesis:\n{output[-12000:]}\n{done.stderr[-2000:]}"
    cases = [line.strip() for line in output.splitlines() if "generated" in line]
    return f"{'; '.join(cases)} in {time.monotonic() - began:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--examples", type=int, default=15, help="requests of each kind that schemathesis makes up")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        receiver = Receiver()
        (folder / "geonce.toml").write_text(CONFIG.format(port=receiver.port))
        gateway = Gateway(arguments.binary, folder / "data", folder / "log", folder / "geonce.toml")
        gateway.start()
        api = Api(gateway, (folder / "data" / "api.token").read_text().strip())
        try:
            who_may_ask(api, gateway.data, gateway.log)
            print("who may ask: ok")
            print(f"pages: {EVENTS} events on {pages(api)} pages, each on one")
            told = follow(api, [point(-i / 10, -5, number=-i) for i in range(1, 200)])
            print(f"stream: {dict(told)}")
            print(f"replays: {replays(api, receiver)}")
            print(f"near: {near(api)}")
            print(f"any input: {any_input(api, arguments.examples)}")
            api.settled()
            books = {source["source"]: source["books"] for source in api.get("/sources")["sources"]}
            assert all(book["balanced"] for book in books.values()), books
            assert books["fussy"]["applied"] == DEAD, books
            print(f"repair: {repair(api)}")
            print("books: " + ", ".join(f"{name} {book['received']} received" for name, book in books.items()) + ", balanced")
        finally:
            gateway.stop()
        log = gateway.log.read_text()
        assert "panicked" not in log and api.token not in log, log[-4000:]
        assert gateway.process is None or gateway.process.returncode == 0, gateway.process.returncode


if __name__ == "__main__":
    main()
