"""A real PostgreSQL for tests: started by the test itself, on loopback, and gone afterwards.

``shared()`` is one server for the whole test process, ``shared().prepared()`` the address of an
empty store in it and ``shared().fresh()`` that of a new database without any. ``running()`` is a
server of one's own, which may be killed. Needs Debian's ``postgresql`` (or any folder with
``initdb`` and ``postgres`` named by ``LOCKSTITCH_POSTGRES``) and, for what goes through a pooler,
``pgbouncer``.
"""

from __future__ import annotations

import atexit
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import count, islice
from pathlib import Path

import psycopg

from lockstitch.stores.postgres import PostgresBackend, connections, schema
from tests import tools

# How long a program may take that only a fault would stop: machines pause, and disks are slow.
PATIENCE = 600
# The same for the answer to a connection, since both sides may have been put to sleep.
connections._DEFAULTS["connect_timeout"] = str(PATIENCE)  # noqa: SLF001 - no option of a user's
PATIENT = f"connect_timeout={PATIENCE}"  # the same in an address, for a process of its own

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "autovacuum_naptime": "5s",
    "log_min_messages": "fatal",
    "max_wal_size": "2GB",
}
END = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
EMPTY = """
DELETE FROM lockstitch.sessions; DELETE FROM lockstitch.records; DELETE FROM lockstitch.blobs;
DELETE FROM lockstitch.uses; DELETE FROM lockstitch.parts
"""
# The versions of the tables, and whatever a test has left in the database besides them.
STATE = """
SELECT (SELECT array_agg(version ORDER BY version) FROM lockstitch.versions),
    (SELECT count(*) FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
     WHERE datname = current_database())
    + (SELECT count(*) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
     WHERE nspname !~ '^(pg_|information_schema|lockstitch)')
"""
# Below the ports that systems give to outgoing connections.
LOWEST_PORT = 14_000
PORTS_A_PROCESS = 1_000


@cache
def programs() -> Path:
    """The folder of the newest PostgreSQL on this machine."""
    return Path(tools.needed("postgresql")).resolve().parent


@cache
def _account() -> str | None:
    """Who runs the server: it refuses to be run by root."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return "nobody"


def own(path: Path) -> Path:
    """Give a path to the account that runs the server."""
    if account := _account():
        entry = pwd.getpwnam(account)
        os.chown(path, entry.pw_uid, entry.pw_gid)
    return path


def started(
    command: list[str], folder: Path, log: Path, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program as the server's account; it does not outlive the test process."""
    account = _account()
    if environment:
        # Not for whoever changes the account first.
        command = ["env", *(f"{name}={value}" for name, value in environment.items()), *command]
    if tool := shutil.which("setpriv"):
        who = ["--reuid", account, "--regid", account, "--clear-groups"] if account else []
        command = [tool, *who, "--pdeathsig", "QUIT", *command]
        account = None
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            cwd=folder,
            user=account,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


@cache
def _candidates() -> Iterator[int]:
    """Ports that no outgoing connection is given, each once, and others in every test process."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 16
    first = secrets.randbelow(PORTS_A_PROCESS)
    lowest = LOWEST_PORT + number * PORTS_A_PROCESS
    return (lowest + (first + step) % PORTS_A_PROCESS for step in count())


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and that nobody else takes meanwhile."""
    for port in islice(_candidates(), PORTS_A_PROCESS):
        with suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def reachable(port: int) -> bool:
    """Whether somebody listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _text_of(log: Path) -> str:
    return log.read_text("utf-8", "replace")[-2000:] if log.exists() else ""


def until_reachable(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until a program that was started listens; fails with its log if it ends before."""
    for _ in range(PATIENCE * 100):
        assert process.poll() is None, f"ended at once: {_text_of(log)}"
        if reachable(port):
            return
        time.sleep(0.01)
    raise AssertionError(f"does not listen: {_text_of(log)}")


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(each) for each in listed.read_text().split()] if listed.exists() else []


@cache
def open_room() -> str:
    """Where folders are made that other accounts get to, too, such as that of the server."""
    places = [tempfile.gettempdir(), "/tmp", "/var/tmp"]  # noqa: S108 - folders in it are private
    return next((each for each in places if not _account() or _is_open(Path(each))), places[0])


def _is_open(folder: Path) -> bool:
    """Whether everybody gets to a folder."""
    return all(each.stat().st_mode & 0o001 for each in (folder, *folder.resolve().parents))


def _new_folder() -> Path:
    return own(Path(tempfile.mkdtemp(prefix="lockstitch-postgres-", dir=open_room())))


@cache
def _template() -> Path:
    """The folder of a new server, made once, since that takes longer than copying it."""
    folder = _new_folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [str(programs() / "initdb"), "-D", str(folder / "data"), "-U", "postgres"]
    command += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
    log = folder / "log"
    assert started(command, folder, log).wait(PATIENCE) == 0, _text_of(log)
    return folder / "data"


class Server:
    """A PostgreSQL of its own in a temporary folder."""

    def __init__(
        self, settings: dict[str, str] | None = None, environment: dict[str, str] | None = None
    ) -> None:
        programs()  # before anything is made that would be left behind without them
        self.folder = _new_folder()
        self.settings = SETTINGS | (settings or {})
        self.environment = environment or {}
        self.port = free_port()
        self.log = self.folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self._names = count(1)
        self._prepared: list[str] = []
        self._has_run = False
        self._initialise()

    @property
    def dsn(self) -> str:
        """The address of the server's first database, as its superuser."""
        return self.address("postgres")

    def address(self, database: str, user: str = "postgres", password: str = "") -> str:
        """The address of a database."""
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@127.0.0.1:{self.port}/{database}"

    def fresh(self) -> str:
        """Make a new empty database and give its address."""
        name = f"fresh_{os.getpid()}_{next(self._names)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.address(name)

    def prepared(self) -> str:
        """Give the address of a store without sessions: that of ``recycle``, or a new one."""
        if self._prepared:
            return self.address(self._prepared.pop())
        address = self.fresh()
        PostgresBackend(address).close()
        return address

    def recycle(self, dsn: str) -> None:
        """Take an address back, and empty the store there, since making a new one takes longer."""
        name = dsn.partition("?")[0].rpartition("/")[2]
        with suppress(psycopg.Error), psycopg.connect(self.address(name)) as connection:
            connection.execute(END)
            connection.execute(EMPTY)
            ((versions, strange),) = connection.execute(STATE).fetchall()
            if versions == list(schema.migrations()) and strange == 0:
                self._prepared.append(name)

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement as the superuser."""
        with psycopg.connect(self.address(database), autocommit=True) as connection:
            done = connection.execute(statement)  # type: ignore[arg-type]
            return done.fetchall() if done.description else []

    def start(self) -> None:
        """Start the server, and wait until it takes connections.

        The port of a new one may have been taken by another program a moment ago.
        """
        for left in reversed(range(5)):
            try:
                self._launch()
                break
            except AssertionError:
                if self._has_run or not left or "TCP/IP sockets" not in _text_of(self.log):
                    raise
                self.port = free_port()
        self._has_run = True

    def _launch(self) -> None:
        options = [f"-c{name}={value}" for name, value in self.settings.items()]
        command = [str(programs() / "postgres"), "-D", str(self.folder / "data")]
        command += ["-p", str(self.port), "-k", "", *options]
        self.process = started(command, self.folder, self.log, self.environment)
        until_reachable(self.process, self.port, self.log)
        self._until_it_answers()

    def stop(self) -> None:
        """Stop the server at once, in order."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill the server and every process of it, as the out-of-memory killer might."""
        assert self.process
        victims = [self.process.pid, *children(self.process.pid)]
        self.process.send_signal(signal.SIGSTOP)
        victims += [pid for pid in children(self.process.pid) if pid not in victims]
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        self.process = None
        for pid in victims:
            _until_gone(pid)

    def remove(self) -> None:
        """Stop the server and remove its folder."""
        if self.process:
            self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(how)
        self.process.wait(PATIENCE)
        self.process = None

    def _initialise(self) -> None:
        copy = [shutil.which("cp") or "cp", "-R", str(_template()), str(self.folder / "data")]
        assert started(copy, self.folder, self.log).wait(PATIENCE) == 0, _text_of(self.log)

    def _until_it_answers(self) -> None:
        for _ in range(PATIENCE * 100):
            assert self.process
            assert self.process.poll() is None, _text_of(self.log)
            with suppress(psycopg.OperationalError):
                if self._is_own():
                    return
            time.sleep(0.01)
        raise AssertionError(_text_of(self.log))

    def _is_own(self) -> bool:
        """Whether it is this server that answers at the port."""
        with psycopg.connect(self.dsn, connect_timeout=10) as connection:
            ((folder,),) = connection.execute("SHOW data_directory").fetchall()
        return bool(folder == str(self.folder / "data"))


def _until_gone(pid: int) -> None:
    for _ in range(PATIENCE * 100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(") ")[2][:1]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} does not end")


@contextmanager
def running(
    settings: dict[str, str] | None = None, environment: dict[str, str] | None = None
) -> Iterator[Server]:
    """Run a server of one's own: ``server.dsn``, ``server.fresh()``, ``server.kill()``."""
    server = Server(settings, environment)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@cache
def shared() -> Server:
    """Give the one server of this test process, which ends with it: do not stop or kill it.

    It does not wait for the disk, which only matters to who pulls the plug, and leaves hundreds
    of databases unswept, which others of the tests' servers do not.
    """
    server = Server({"fsync": "off", "autovacuum": "off"})
    atexit.register(server.remove)
    server.start()
    return server


@contextmanager
def pooled(port: int, **settings: str) -> Iterator[int]:
    """Run a PgBouncer in transaction mode before a server, and give its port."""
    program = tools.needed("pgbouncer")
    with tempfile.TemporaryDirectory(prefix="lockstitch-pgbouncer-", dir=open_room()) as name:
        folder, own_port = own(Path(name)), free_port()
        _configure(folder / "ini", own_port, port, settings)
        log = folder / "log"
        process = started([program, str(folder / "ini")], folder, log)
        try:
            until_reachable(process, own_port, log)
            yield own_port
        finally:
            process.kill()
            process.wait(PATIENCE)


def _configure(file: Path, port: int, server: int, more: dict[str, str]) -> None:
    options = {
        "listen_addr": "127.0.0.1",
        "listen_port": str(port),
        "unix_socket_dir": "",
        "pool_mode": "transaction",
        "auth_type": "any",
        # Fewer than the clients have: a transaction gets whichever is free.
        "default_pool_size": "3",
        "max_client_conn": "1000",
    } | more
    lines = [f"{name} = {value}" for name, value in options.items()]
    target = f"* = host=127.0.0.1 port={server} user=postgres"
    file.write_text("\n".join(["[databases]", target, "[pgbouncer]", *lines, ""]), "utf-8")
    own(file)


@cache
def shared_pooler() -> int:
    """Give the port of the one PgBouncer before ``shared()``, which ends with this process."""
    opened = ExitStack()
    atexit.register(opened.close)
    return opened.enter_context(pooled(shared().port))


def through_pooler(dsn: str) -> str:
    """Give the address of one of ``shared()``'s databases through its PgBouncer."""
    return dsn.replace(f":{shared().port}/", f":{shared_pooler()}/")
