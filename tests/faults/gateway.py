"""The gateway as a process: started, killed, frozen, looked at from outside."""

import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

READY_SECONDS_MAX = 20
STOP_SECONDS_MAX = 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Gateway:
    """One data folder, one port, any number of lives. Logs go beside the data folder, never into it: it may be cut off."""

    def __init__(
        self,
        binary: str,
        data: pathlib.Path,
        log: pathlib.Path,
        config: pathlib.Path | None = None,
        instance: str = "gateway",
    ):
        self.binary, self.data, self.log, self.config, self.instance = binary, data, log, config, instance
        self.port = free_port()
        self.process = None
        self.started = 0.0

    def start(self, wait: bool = True) -> None:
        command = [self.binary, "serve", "--listen", f"127.0.0.1:{self.port}", "--data", str(self.data)]
        if self.config:
            command += ["--config", str(self.config)]
        self.started = time.monotonic()
        with open(self.log, "ab") as log:
            named = {**os.environ, "GEONCE_INSTANCE": self.instance}
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, env=named)
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        while time.monotonic() < self.started + READY_SECONDS_MAX:
            if self.process.poll() is not None:
                raise RuntimeError(f"the gateway ended with {self.process.returncode}: {self.log_end()}")
            try:
                if self.get("/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.005)
        raise RuntimeError(f"the gateway was not ready in {READY_SECONDS_MAX} s: {self.log_end()}")

    def log_end(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def get(self, path: str, timeout: float = 5) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()

    def metric(self, name: str) -> int:
        """The value of a metric, summed over what its labels begin with."""
        lines = self.get("/metrics")[1].splitlines()
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith(name))

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        if self.alive():
            self.process.kill()
        if self.process:
            self.process.wait()

    def stop(self) -> int:
        """Asks it to end; its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"the gateway did not stop in {STOP_SECONDS_MAX} s: {self.log_end()}") from None

    def memory_peak_megabytes(self) -> float:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024

    def command(self, *words: str) -> subprocess.CompletedProcess:
        """Another command of the binary on the same data folder."""
        where = ["--data", str(self.data)] + (["--config", str(self.config)] if self.config else [])
        return subprocess.run([self.binary, *words, *where], capture_output=True, text=True, check=False, timeout=60)

    def ledger(self) -> tuple[bool, dict[str, int]]:
        """Whether `doctor` finds that the books sum, and the books of all sources together."""
        answer = self.command("doctor", "--json")
        books: dict[str, int] = {}
        for one in ledgers(json.loads(answer.stdout)) if answer.stdout.strip() else ():
            for name, number in one.items():
                if isinstance(number, int):
                    books[name] = books.get(name, 0) + number
        return answer.returncode == 0 and bool(books), books


def ledgers(value):
    """Every object in a document that is a ledger."""
    if isinstance(value, dict):
        if "received" in value and "waiting" in value:
            yield value
        else:
            for inner in value.values():
                yield from ledgers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from ledgers(inner)
