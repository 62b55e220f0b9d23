#!/usr/bin/env python3
"""`geonce dead repair`, `replay` and `purge` beside a running gateway with an embedded store: the gateway does the work, and
whoever asks sees the same as without one.

    python tests/python/check_beside.py PATH/TO/geonce

Every command is run twice: beside a running gateway, and on a copy of the same store with no gateway. Output and exit codes
must be the same. Then Ctrl-C in the middle, wrong tokens, addresses that a killed gateway has left, a gateway that is killed
while it works, and followers that go away. After each the books must balance.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "faults"))
sys.path.insert(0, str(ROOT / "tests" / "python"))
from check_api import FUSSY, Api, Receiver, point, send  # noqa: E402
from gateway import Gateway  # noqa: E402

SECONDS_MAX = 60
# A gateway ends a job whose follower is gone after 30 s.
ABANDONED_SECONDS_MAX = 45
BOW_TIES = 300

CONFIG = FUSSY + """
[source.zones]
allow_unsigned = true
invalid = "dead"
sink = "zones"

[source.more]
allow_unsigned = true
invalid = "dead"
sink = "zones"

[sink.zones]
url = "gpkg:zones.gpkg"
"""


def bow_tie(i: int) -> str:
    coordinates = [[[0, 0], [2, 2], [2, 0], [0, 2 + i / 1000], [0, 0]]]
    feature = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": coordinates}, "properties": {"number": i}}
    return json.dumps(feature)


def swapped(i: int) -> str:
    """Latitude first: out of bounds, and fits when exchanged. Kept as dead, because another feature of the request is not refused."""
    geometry = {"type": "Point", "coordinates": [45.5, 113.4 + i / 1000]}
    return json.dumps({"type": "Feature", "geometry": geometry, "properties": {"swapped": i}})


class Beside:
    def __init__(self, gateway: Gateway, config: Path):
        self.gateway, self.config = gateway, config

    def run(self, *words: str, data: Path | None = None, env: dict | None = None) -> subprocess.CompletedProcess:
        where = ["--data", str(data or self.gateway.data), "--config", str(self.config)]
        environment = {**os.environ, "USER": "ada", **(env or {})}
        command = [self.gateway.binary, "dead", *words, *where]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX, env=environment)

    def start(self, *words: str) -> subprocess.Popen:
        where = ["--data", str(self.gateway.data), "--config", str(self.config)]
        command = [self.gateway.binary, "dead", *words, *where]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "USER": "ada"})

    def api(self) -> Api:
        return Api(self.gateway, (self.gateway.data / "api.token").read_text().strip())

    def books(self) -> dict:
        api = self.api()
        status = api.settled()
        books = {source["source"]: source["books"] for source in api.get("/sources")["sources"]}
        assert all(book["balanced"] for book in books.values()), books
        sums, _ = self.gateway.ledger()
        assert sums, "the books do not sum"
        return status["books"]


def alike(text: str) -> str:
    """Output without what differs from run to run: new events, and the order of nothing else."""
    text = re.sub(r'("event":")evt_[0-9A-Z]+("\}\})', r"\1NEW\2", text)
    text = re.sub(r"(repaired as )evt_[0-9A-Z]+", r"\1NEW", text)
    return re.sub(r"^\d{4}-\S+ looked at.*\n", "", text, flags=re.MULTILINE)


def same_as_alone(beside: Beside, folder: Path) -> str:
    """Beside a gateway and without one, on the same store: the same words, the same codes."""
    gateway, api = beside.gateway, beside.api()
    sent = send(gateway, "zones", [bow_tie(i) for i in range(BOW_TIES)] + [swapped(i) for i in range(5)] + [point(1, 2, number=1)])
    ids = [one["event"] for one in sent[:BOW_TIES]]
    send(gateway, "fussy", [point(i, 60, number=i) for i in range(20)])
    api.wait("what is refused dies", lambda: api.get("/dead?source=fussy")["events"] == 20)
    api.settled()
    key = api.get(f"/events/{ids[3]}")["key"]
    gateway.stop()
    assert not (gateway.data / "api.address").exists(), "a gateway that ends takes its address away"
    alone = folder / "alone"
    shutil.copytree(gateway.data, alone)
    gateway.start()
    address = (gateway.data / "api.address").read_text()
    assert address == f"http://127.0.0.1:{gateway.port}\n", address
    lines = 0
    for words in [
        ("repair", "--all"),
        ("repair", "--all", "--with", "glue", "--yes"),
        ("repair", "evt_01JD8Q0000000000000000000Z", "--yes"),
        ("repair", "g1_AAAAAAAAAAAAAAAAAAAAAA", "--yes"),
        ("repair", ids[0], ids[1], "--dry-run"),
        ("repair", ids[0], "--dry-run", "--json"),
        ("repair", ids[0], "--with", "close-rings", "--yes"),
        ("repair", ids[0], "--with", "close-rings", "--yes", "--json"),
        ("repair", ids[0], ids[1], ids[0], "--yes"),
        ("repair", ids[0], "--yes"),
        ("repair", ids[2], "--yes", "--json"),
        ("repair", key, "--yes", "--json", "--with", "grid,close-rings"),
        ("repair", "--code", "geojson_bounds", "--source", "zones", "--since", "1h", "--yes"),
        ("repair", "--source", "fussy", "--yes", "--json"),
        ("repair", "--code", "self_intersection", "--until", "2020-01-01T00:00:00Z", "--yes"),
        # More than a gateway keeps of what it did: all of it is told all the same.
        ("repair", "--code", "self_intersection", "--yes", "--json"),
        ("repair", "--code", "self_intersection", "--yes"),
        ("purge", "--source", "fussy", "--until", "2020-01-01T00:00:00Z", "--yes"),
        ("replay", "--source", "fussy", "--dry-run"),
        ("purge", "--source", "fussy", "--yes", "--rate", "500/s"),
        ("purge", "--source", "fussy", "--yes"),
    ]:
        there, here = beside.run(*words), beside.run(*words, data=alone)
        for name in ("stdout", "stderr"):
            a, b = alike(getattr(there, name)), alike(getattr(here, name))
            assert a == b, f"{words}: {name}\nbeside a gateway:\n{a[:3000]}\nalone:\n{b[:3000]}\n{there.stderr}\n{here.stderr}"
        assert there.returncode == here.returncode, (words, there.returncode, here.returncode)
        lines += len(there.stdout.splitlines())
    repaired = beside.books()["repaired"]
    assert repaired == BOW_TIES + 5, repaired
    entries = api.get("/audit?limit=1000")["entries"]
    who = {entry["asked"]["who"] for entry in entries}
    assert all(re.fullmatch(r"ada@\S+ \(api from 127\.0\.0\.1\)", one) for one in who), who
    big = next(entry for entry in entries if entry["result"].get("repaired") == BOW_TIES - 4)
    assert big["asked"]["action"] == "repair" and big["asked"]["asked"]["events"] == BOW_TIES - 4, big
    return f"{lines} lines, {repaired} repaired, {len(entries)} audit entries by {who.pop()}"


def interrupted(beside: Beside) -> str:
    """Ctrl-C in the middle: what was done is told, the rest stays dead, the same command again does it."""
    api, gateway = beside.api(), beside.gateway
    send(gateway, "zones", [bow_tie(i) for i in range(1000, 1010)])
    api.wait("they are dead", lambda: api.get("/dead?code=self_intersection")["events"] == 10)
    running = beside.start("repair", "--code", "self_intersection", "--yes", "--rate", "2/s", "--json")
    first = json.loads(running.stdout.readline())
    assert first["repaired"]["result"] == "accepted", first
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=SECONDS_MAX)
    assert running.returncode == 130, (running.returncode, err)
    done = 1 + len(out.splitlines())
    assert "ending after this step" in err, err
    assert f"repaired {done} of 10, left as they are 0, not come to {10 - done}" in err, (done, err)
    assert 1 <= done < 10, done
    job = api.get("/repairs")["jobs"][0]
    assert (job["state"], job["done"]) == ("cancelled", done), job
    assert api.get("/audit")["entries"][0]["result"]["cancelled"] is True
    again = beside.run("repair", "--code", "self_intersection", "--yes")
    assert again.returncode == 0 and f"repaired {10 - done} of {10 - done}" in again.stderr, again.stderr
    beside.books()
    return f"{done} before Ctrl-C, {10 - done} after"


def tokens(beside: Beside, folder: Path) -> str:
    """A token that the gateway does not take: a repair says so, a replay is done beside it."""
    api, gateway = beside.api(), beside.gateway
    send(gateway, "zones", [bow_tie(2000)])
    send(gateway, "fussy", [point(1, 61, number=61)])
    api.wait("both are dead", lambda: api.get("/dead")["events"] == 2)
    wrong = {"GEONCE_API__TOKEN": "this is not the token".replace(" ", "-")}
    refused = beside.run("repair", "--all", "--yes", env=wrong)
    assert refused.returncode == 2 and "[gateway_running]" in refused.stderr and "token" in refused.stderr, refused.stderr
    assert "this-is-not" not in refused.stderr, refused.stderr
    replayed = beside.run("replay", "--source", "fussy", "--yes", env=wrong)
    assert replayed.returncode == 0 and "the gateway is not asked" in replayed.stderr, replayed.stderr
    assert "replayed 1 of 1" in replayed.stderr, replayed.stderr
    elsewhere = beside.run("repair", "--all", "--yes", data=folder / "alone", env={"GEONCE_STORE__URL": f"sqlite:{gateway.data}/geonce.db"})
    assert elsewhere.returncode == 2 and "[gateway_running]" in elsewhere.stderr and "--data" in elsewhere.stderr, elsewhere.stderr
    done = beside.run("repair", "--code", "self_intersection", "--yes")
    assert done.returncode == 0, done.stderr
    beside.books()
    return "ok"


def other_store(beside: Beside) -> str:
    """An address that leads to a gateway with another store is not followed."""
    gateway = beside.gateway
    address = gateway.data / "api.address"
    with tempfile.TemporaryDirectory() as name:
        other = Gateway(gateway.binary, Path(name) / "data", Path(name) / "log", beside.config, "other")
        other.start()
        try:
            token, kept = other.data / "api.token", address.read_text()
            address.write_text((other.data / "api.address").read_text())
            refused = beside.run("repair", "--all", "--yes", env={"GEONCE_API__TOKEN": token.read_text().strip()})
            assert refused.returncode == 2 and "another store" in refused.stderr, refused.stderr
            for nonsense in ("", "ftp://127.0.0.1:1\n", "http://nowhere\n", "http://127.0.0.1:1\n", "x" * 1000):
                address.write_text(nonsense)
                refused = beside.run("repair", "--all", "--yes")
                assert refused.returncode == 2 and "[gateway_running]" in refused.stderr, (nonsense, refused.stderr)
            address.write_text(kept)
        finally:
            other.stop()
    return "ok"


def killed(beside: Beside) -> str:
    """A gateway that is killed leaves its address behind, and its store free: the command does the work itself."""
    api, gateway = beside.api(), beside.gateway
    send(gateway, "zones", [bow_tie(i) for i in range(3000, 3010)])
    api.wait("they are dead", lambda: api.get("/dead?code=self_intersection")["events"] == 10)
    running = beside.start("repair", "--code", "self_intersection", "--yes", "--rate", "2/s", "--json")
    json.loads(running.stdout.readline())
    gateway.kill()
    out, err = running.communicate(timeout=SECONDS_MAX)
    assert running.returncode == 2 and "[gateway_silent]" in err and "@audit" in err, (running.returncode, err)
    done = 1 + len(out.splitlines())
    assert (gateway.data / "api.address").exists()
    # What was told was done; more may have been done before the kill and not told.
    alone = beside.run("repair", "--code", "self_intersection", "--yes")
    assert alone.returncode == 0, alone.stderr
    found = re.search(r"repaired (\d+) of (\d+)", alone.stderr)
    assert found and found[1] == found[2] and 1 <= int(found[1]) <= 10 - done, (done, alone.stderr)
    gateway.start()
    beside.books()
    return f"{done} before the kill, {found[1]} after"


def forsaken(beside: Beside) -> str:
    """A command that is killed takes its job along: the gateway ends what nobody follows. It waits for one whose output is not read."""
    api, gateway = beside.api(), beside.gateway
    send(gateway, "zones", [bow_tie(i) for i in range(4000, 4400)])
    send(gateway, "more", [bow_tie(i) for i in range(5000, 6000)])
    api.wait("they are dead", lambda: api.get("/dead?code=self_intersection")["events"] == 1400)
    stalled = beside.start("repair", "--source", "more", "--yes", "--json")
    api.wait("it runs", lambda: any(job["state"] == "running" for job in api.get("/repairs")["jobs"]))
    waiting = next(job["id"] for job in api.get("/repairs")["jobs"] if job["state"] == "running")
    running = beside.start("repair", "--source", "zones", "--yes", "--rate", "1/s", "--json")
    running.stdout.readline()
    running.kill()
    running.communicate()
    began = time.monotonic()
    while (job := api.get("/repairs")["jobs"][0])["state"] == "running":
        assert time.monotonic() < began + ABANDONED_SECONDS_MAX, "the job goes on without its follower"
        time.sleep(0.5)
    assert job["id"] != waiting and job["state"] == "cancelled", job
    took = time.monotonic() - began
    job = next(job for job in api.get("/repairs")["jobs"] if job["id"] == waiting)
    assert job["state"] == "running" and job["done"] < 1000, f"nobody has read what it prints, and it is not held: {job}"
    out, err = stalled.communicate(timeout=SECONDS_MAX)
    assert stalled.returncode == 0 and "repaired 1 000 of 1 000" in err, (stalled.returncode, err)
    assert len({json.loads(line)["event"] for line in out.splitlines()}) == 1000
    rest = beside.run("repair", "--code", "self_intersection", "--yes")
    assert rest.returncode == 0, rest.stderr
    beside.books()
    return f"ended after {took:.0f} s; one that was not read was held at {job['done']} of 1000"


def own_door(beside: Beside, folder: Path) -> str:
    """An API with an address of its own, which only the gateway knows."""
    config = folder / "door.toml"
    config.write_text(beside.config.read_text() + '\n[api]\nlisten = "127.0.0.1:0"\ntoken = "${DOOR_TOKEN}"\n')
    os.environ["DOOR_TOKEN"] = "a-token-of-twenty-signs"
    gateway = Gateway(beside.gateway.binary, folder / "door", folder / "door.log", config, "door")
    gateway.start()
    try:
        port = int((gateway.data / "api.address").read_text().rsplit(":", 1)[1])
        assert port != gateway.port and not (gateway.data / "api.token").exists()
        send(gateway, "zones", [bow_tie(1), point(1, 2)])
        done = Beside(gateway, config).run("repair", "--all", "--yes")
        assert done.returncode == 0 and "repaired 1 of 1" in done.stderr, done.stderr
    finally:
        gateway.stop()
        del os.environ["DOOR_TOKEN"]
    return "ok"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, receiver = Path(name), Receiver()
        config = folder / "geonce.toml"
        config.write_text(CONFIG.format(port=receiver.port))
        gateway = Gateway(arguments.binary, folder / "data", folder / "log", config)
        gateway.start()
        beside = Beside(gateway, config)
        try:
            print(f"same as alone: {same_as_alone(beside, folder)}")
            print(f"Ctrl-C: {interrupted(beside)}")
            print(f"tokens: {tokens(beside, folder)}")
            print(f"addresses: {other_store(beside)}")
            print(f"killed: {killed(beside)}")
            print(f"forsaken: {forsaken(beside)}")
            print(f"own door: {own_door(beside, folder)}")
        finally:
            if gateway.alive():
                gateway.stop()
        log = gateway.log.read_text()
        assert "panicked" not in log, log[-4000:]
        assert gateway.process.returncode == 0, gateway.process.returncode


if __name__ == "__main__":
    main()
