"""Real servers, started by the program `services` beside the gateway's binary, and a gateway configured to use them."""

import pathlib
import subprocess

from gateway import Gateway

# Seldom enough to be noticed, often enough for a test: what a killed gateway held is given to others after this.
LEASE = "2s"


class Services:
    """Answers one command at a time; everything it has started ends with it."""

    def __init__(self, binary: str):
        program = pathlib.Path(binary).with_name("services")
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> "Services":
        return self

    def __exit__(self, *_) -> None:
        self.process.stdin.close()
        self.process.wait(30)

    def ask(self, *words) -> str:
        self.process.stdin.write("\t".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{words[0]}: the servers ended with {self.process.wait(30)}")
        return answer.rstrip("\n").replace("\x1e", "\n")


class Database:
    """A PostgreSQL with a database of its own, and a proxy before it."""

    def __init__(self, services: Services, *settings: str):
        self.services = services
        self.port = services.ask("postgres", *settings)
        self.direct = services.ask("database", 0)
        self.name = self.direct.rsplit("/", 1)[1]
        self.proxy_port = services.ask("proxy", self.port)
        self.url = self.direct.replace(f":{self.port}/", f":{self.proxy_port}/")

    def sql(self, statement: str) -> list[list[str]]:
        text = self.services.ask("sql", 0, self.name, statement)
        return [line.split("|") for line in text.splitlines()]

    def fault(self, *words) -> None:
        self.services.ask("fault", 0, *words)

    def swallowed(self) -> int:
        return int(self.services.ask("swallowed", 0))


class PostGis:
    """The layer in a database."""

    def __init__(self, database: Database, table: str = "public.features"):
        self.database, self.table = database, table

    def count(self) -> int:
        if not self.exists():
            return 0
        return int(self.database.sql(f"SELECT count(*) FROM {self.table}")[0][0])

    def exists(self) -> bool:
        return self.database.sql(f"SELECT to_regclass('{self.table}') IS NOT NULL")[0][0] == "t"

    def rows(self) -> list[tuple[str, str, int]]:
        if not self.exists():
            return []
        found = self.database.sql(f"SELECT geonce_key, geonce_event, n FROM {self.table}")
        return [(key, event, int(number)) for key, event, number in found]

    def proofs(self) -> int:
        return int(self.database.sql("SELECT count(*) FROM geonce_applied")[0][0])

    def damage(self) -> list[str]:
        return []


def config(folder: pathlib.Path, store: str, sink: str, source: str = "", lease: str = LEASE, more: str = "") -> pathlib.Path:
    """A gateway's configuration: one source, one layer."""
    file = folder / "geonce.toml"
    file.write_text(
        f'[store]\nurl = "{store}"\nlease = "{lease}"\n[source.default]\nallow_unsigned = true\n{source}\n'
        f'[sink.features]\nurl = "{sink}"\n{more}\n'
    )
    return file


def gateways(binary: str, folder: pathlib.Path, count: int, file: pathlib.Path) -> list[Gateway]:
    """Gateways with a data folder each."""
    return [
        Gateway(binary, folder / f"data{number}", folder / f"log{number}", file, f"gateway-{number}")
        for number in range(count)
    ]
