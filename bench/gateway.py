"""The gateway beside its ceilings and beside Python, in one run: both sides of every comparison, medians, ratios, bars.

    python bench/gateway.py [--repeat 3] [--seconds 5] [--sustained 60] [--growth 1,2,5,10,20] [--only accept,sustained,growth]

accept     acks/s, CPU per event, p50 and p99 at 64 and 256 connections, for fresh points, duplicates and batches of 1,000:
           the gateway; `acks`, the gateway while its sink cannot be reached; `bare`, a hyper server that reads and answers;
           FastAPI on Redis (appendfsync always), which puts events into a queue; `raw`, group commits of the same rows into SQLite
sustained  batches for a minute at a steady rate, end to end into the GeoPackage, beside raw inserts into such a table with its
           R-tree; memory
growth     the cost of accepting at 1 to 20 million live keys

CPU is that of the server's processes, user and system; Redis counts with its receiver. What delivers from its queue would
come on top of FastAPI's, so `acks` is what stands beside it. Load generator and servers share
the machine, so read the ratios. Everything is made in a folder under --folder and removed afterwards: fsync means that disk.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
READY_SECONDS_MAX = 30
DRAIN_SECONDS_MAX = 300
MEMORY_MEGABYTES_MAX = 256
OFFERED_SHARE = 0.6
TICKS = os.sysconf("SC_CLK_TCK")
KINDS = ("fresh", "duplicates", "batches")
CONNECTIONS = (64, 256)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_peak_megabytes(pid: int) -> float:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


class Server:
    """One or more processes that serve one port; ended in the reverse order."""

    def __init__(self, commands: list[list[str]], port: int, environment: dict | None = None):
        self.port, self.processes = port, []
        for command in commands:
            self.processes.append(
                subprocess.Popen(
                    command,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, **(environment or {})},
                )
            )
        try:
            self.wait_open()
        except RuntimeError:
            self.stop()
            raise

    def wait_open(self) -> None:
        end = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
            if any(process.poll() is not None for process in self.processes):
                break
        raise RuntimeError(f"{self.processes[-1].args[0]} did not open its port")

    def cpu(self) -> float:
        return sum(cpu_seconds(process.pid) for process in self.processes)

    def memory(self) -> float:
        return sum(memory_peak_megabytes(process.pid) for process in self.processes)

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Run:
    """The programs, and a fresh folder for each measurement."""

    def __init__(self, given: argparse.Namespace, folder: str):
        self.given, self.folder, self.tag = given, pathlib.Path(folder), 0
        self.release = pathlib.Path(given.release)

    def fresh(self) -> pathlib.Path:
        self.tag += 1
        path = self.folder / str(self.tag)
        path.mkdir()
        return path

    def program(self, name: str, *words) -> dict:
        command = [str(self.release / name), *map(str, words)]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])

    def gateway(self, data: pathlib.Path) -> Server:
        port = free_port()
        return Server(
            [[str(self.release / "geonce"), "serve", "--listen", f"127.0.0.1:{port}", "--data", str(data)]], port
        )

    def acks(self, data: pathlib.Path) -> Server:
        port = free_port()
        config = data / "geonce.toml"
        config.write_text(
            f'[sink.away]\nurl = "http://127.0.0.1:{free_port()}/"\nallow = ["127.0.0.1/32"]\n'
            '[source.default]\nallow_unsigned = true\nsink = "away"\n'
        )
        words = ["serve", "--config", str(config), "--listen", f"127.0.0.1:{port}", "--data", str(data)]
        return Server([[str(self.release / "geonce"), *words]], port)

    def bare(self, _: pathlib.Path) -> Server:
        port = free_port()
        return Server([[str(self.release / "bare"), f"127.0.0.1:{port}"]], port)

    def python(self, data: pathlib.Path) -> Server:
        port, redis = free_port(), free_port()
        store = [
            "redis-server",
            "--port",
            redis,
            "--bind",
            "127.0.0.1",
            "--dir",
            data,
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
        ]
        serve = [
            sys.executable,
            "-m",
            "uvicorn",
            "receiver:app",
            "--app-dir",
            ROOT / "bench",
            "--host",
            "127.0.0.1",
            "--port",
            port,
            "--loop",
            "uvloop",
            "--http",
            "httptools",
            "--no-access-log",
            "--log-level",
            "warning",
        ]
        commands = [[str(word) for word in command] for command in (store, serve)]
        return Server(commands, port, {"REDIS_URL": f"redis://127.0.0.1:{redis}"})

    def load(self, server: Server, kind: str, connections: int, seconds: float, *more) -> dict:
        """One measurement of one server: rate, latencies, CPU of both sides."""
        self.tag += 1
        words = (f"127.0.0.1:{server.port}", "--kind", kind, "--connections", connections, "--tag", self.tag)
        before = server.cpu()
        found = self.program("load", *words, "--seconds", seconds, *more)
        found["cpu_us"] = (server.cpu() - before) * 1e6 / max(1, found["events"])
        found["load_us"] = found["load_cpu_seconds"] * 1e6 / max(1, found["events"])
        return found

    def served(self, start, kind: str, connections: int) -> dict:
        data = self.fresh()
        server = start(data)
        try:
            self.load(server, kind, connections, 0.5)
            found = self.load(server, kind, connections, self.given.seconds)
            found["memory_mb"] = server.memory()
        finally:
            server.stop()
            shutil.rmtree(data)
        return found

    def raw(self, kind: str, connections: int) -> dict:
        data = self.fresh()
        rows = 1_000 if kind == "batches" else 1
        found = self.program(
            "raw", "accept", data / "raw.db", "--tasks", connections, "--rows", rows, "--seconds", self.given.seconds
        )
        shutil.rmtree(data)
        found["cpu_us"] = found["cpu_seconds"] * 1e6 / max(1, found["events"])
        return found

    def fsync(self) -> dict:
        data = self.fresh()
        found = self.program("raw", "fsync", data / "file", "--seconds", 2)
        shutil.rmtree(data)
        return found

    def fsync_under_load(self) -> dict:
        """The disk as the gateway has it: with both sides of a benchmark running beside."""
        server = self.bare(self.folder)
        words = [str(self.release / "load"), f"127.0.0.1:{server.port}", "--connections", "64", "--seconds", "3"]
        load = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            return self.fsync()
        finally:
            load.wait()
            server.stop()


def median(repeats: list[dict]) -> dict:
    numbers = [name for name, value in repeats[0].items() if isinstance(value, (int, float))]
    found = {name: statistics.median(one[name] for one in repeats) for name in numbers}
    found["statuses"] = [one.get("statuses") for one in repeats]
    return found


def bar(text: str, value: float, least: float | None = None, most: float | None = None) -> None:
    met = value >= least if least is not None else value <= most
    bound = f">= {least:,.2f}" if least is not None else f"<= {most:,.2f}"
    print(f"  {'met   ' if met else 'MISSED'}  {text}: {value:,.2f} (bar {bound})", flush=True)


def check_statuses(name: str, kind: str, found: dict) -> None:
    """A receiver that answers otherwise than asked is not measured but wrong."""
    expected = {"200"} if kind == "duplicates" and name != "bare" else {"202"}
    for statuses in found["statuses"]:
        if statuses is not None and set(statuses) != expected:
            print(f"  note: {name} answered {kind} with {statuses}")


def accept(run: Run) -> None:
    disk = run.fsync()
    loaded = run.fsync_under_load()
    print(
        f"fsync of 4 KB: p50 {disk['p50_ms']:.2f} ms, p99 {disk['p99_ms']:.2f} ms; beside load p50 {loaded['p50_ms']:.2f} ms, p99 {loaded['p99_ms']:.2f} ms"
    )
    print(f"\n{'':34}{'events/s':>12}{'CPU us':>9}{'p50 ms':>9}{'p99 ms':>9}{'load us':>9}{'memory MB':>11}")
    table = {}
    for kind in KINDS:
        for connections in CONNECTIONS:
            sides = {
                "geonce": run.gateway,
                "acks": run.acks,
                "bare": run.bare,
                "fastapi": run.python,
                "raw": None,
            }
            if kind == "duplicates":
                del sides["raw"]
            if kind != "fresh":
                del sides["acks"]
            repeats = {name: [] for name in sides}
            # The sides take turns, so that a slow minute of the machine is shared.
            for _ in range(run.given.repeat):
                for name, start in sides.items():
                    repeats[name].append(run.served(start, kind, connections) if start else run.raw(kind, connections))
            for name, found in repeats.items():
                row = table[kind, connections, name] = median(found)
                check_statuses(name, kind, row)
                print(
                    f"{kind:12}{connections:>5} conn.  {name:12}{row['events_per_second']:>12,.0f}{row['cpu_us']:>9.1f}{row['p50_ms']:>9.2f}"
                    f"{row['p99_ms']:>9.2f}{row.get('load_us', 0):>9.1f}{row.get('memory_mb', 0):>11.0f}",
                    flush=True,
                )
    print()
    for connections in CONNECTIONS:
        rate = {key[0] + " " + key[2]: row["events_per_second"] for key, row in table.items() if key[1] == connections}
        cpu = {key[0] + " " + key[2]: row["cpu_us"] for key, row in table.items() if key[1] == connections}
        print(f"{connections} connections")
        bar("fresh, share of the bare server's rate", rate["fresh geonce"] / rate["fresh bare"], least=0.35)
        bar("fresh, acknowledged alone, times FastAPI per CPU second", cpu["fresh fastapi"] / cpu["fresh acks"], least=20)
        bar("fresh, delivered as well, times FastAPI per CPU second", cpu["fresh fastapi"] / cpu["fresh geonce"], least=20)
        floor = cpu["fresh bare"] + cpu["fresh raw"]
        print(f"          (the bare server and raw group commits together: {cpu['fresh fastapi'] / floor:,.2f} times)")
        bar("duplicates, share of fresh", rate["duplicates geonce"] / rate["fresh geonce"], least=1)
        bar("batches, share of raw group commits", rate["batches geonce"] / rate["batches raw"], least=0.4)
    ours, bare = table["fresh", 64, "geonce"]["p99_ms"], table["fresh", 64, "bare"]["p99_ms"]
    bar("p99 at 64 connections in ms, fsync alone", ours, most=3 * bare + 3 * disk["p99_ms"])
    bar("p99 at 64 connections in ms, fsync beside load", ours, most=3 * bare + 3 * loaded["p99_ms"])


def waiting(port: int) -> int:
    """Events that are ready or leased."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if line.startswith("geonce_events{") and ('"ready"' in line or '"leased"' in line)]
    if not found:
        raise RuntimeError("/metrics does not say how many events wait")
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in found)


def sustained(run: Run) -> None:
    """Batches come in at a share of what raw inserts reach; what counts is what has reached the layer when they stop."""
    seconds = run.given.sustained
    raw_folder = run.fresh()
    raw = run.program("raw", "layer", raw_folder / "raw.gpkg", "--rows", 1_000, "--seconds", seconds)
    shutil.rmtree(raw_folder)
    raw_rate = raw["events_per_second"]
    data = run.fresh()
    server = run.gateway(data)
    try:
        before = server.cpu()
        found = run.load(server, "batches", 4, seconds, "--rate", raw_rate * OFFERED_SHARE)
        backlog = waiting(server.port)
        cpu = server.cpu() - before
        drain = time.monotonic()
        while waiting(server.port):
            if time.monotonic() > drain + DRAIN_SECONDS_MAX:
                sys.exit("the backlog was not delivered")
            time.sleep(0.1)
        drained, memory = time.monotonic() - drain, server.memory()
    finally:
        server.stop()
    size = sum(file.stat().st_size for file in data.iterdir()) / 1e6
    shutil.rmtree(data)
    rows = found["events"] - backlog
    print(
        f"\nraw inserts with R-tree for {seconds:.0f} s: {raw['events']:,} rows, {raw_rate:,.0f}/s, {raw['cpu_seconds'] * 1e6 / raw['events']:.1f} us CPU each"
        f"\nend to end, batches for {seconds:.0f} s at {OFFERED_SHARE:.0%} of that: {found['events']:,} acknowledged (p99 {found['p99_ms']:.0f} ms), {rows:,} in the layer "
        f"({rows / seconds:,.0f}/s, {cpu * 1e6 / rows:.1f} us CPU each), {backlog:,} waiting, delivered {drained:.1f} s later; {size:,.0f} MB on disk"
    )
    bar("end to end, share of raw inserts", rows / seconds / raw_rate, least=0.4)
    bar("memory in MB", memory, most=MEMORY_MEGABYTES_MAX)


def growth(run: Run) -> None:
    data = run.fresh()
    print(f"\n{'live keys':>12}{'accepts/s':>12}{'CPU us':>9}{'memory MB':>11}")
    rows = []
    command = [str(run.release / "growth"), str(data), "--sizes", run.given.growth]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            row = json.loads(line)
            rows.append(row)
            print(
                f"{row['live_keys']:>12,}{row['events_per_second']:>12,.0f}{row['cpu_us_per_event']:>9.1f}{row['memory_mb']:>11.0f}",
                flush=True,
            )
    if process.returncode:
        sys.exit("growth failed")
    shutil.rmtree(data)
    bar(
        "rate at the most keys, share of the rate at the fewest",
        rows[-1]["events_per_second"] / rows[0]["events_per_second"],
        least=0.6,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--sustained", type=float, default=60)
    parser.add_argument("--growth", default="1,2,5,10,20", help="sizes in millions of keys")
    parser.add_argument("--only", default="accept,sustained,growth")
    parser.add_argument("--release", default=str(ROOT / "target" / "release"), help="where the built programs are")
    parser.add_argument("--folder", default=None, help="where to put the data; default the system's temporary folder")
    given = parser.parse_args()
    if shutil.which("redis-server") is None and "accept" in given.only:
        sys.exit("redis-server is not installed; the comparison needs it")
    parts = {"accept": accept, "sustained": sustained, "growth": growth}
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        run = Run(given, folder)
        for name in given.only.split(","):
            parts[name](run)


if __name__ == "__main__":
    main()
