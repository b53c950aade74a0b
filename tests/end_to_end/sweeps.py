"""Real sweeps in processes of their own, for tests that kill them, and the ports at which processes listen."""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import psutil

from sweeper.storage.rows import PROVENANCE

ROOT = Path(__file__).parents[2]
TIMEOUT = 600.0
"""Seconds after which a wait fails. Only a sweep that hangs takes so long, but a busy machine may need minutes where an
idle one needs seconds."""
POLL = 0.1
"""Seconds between two checks of what a test waits for."""
TRAINERS = ("ray::CohortActor.train", "ray::RayTrainWorker")
"""How the titles of processes that train begin: a cohort alone, or one of a group of workers."""
VOLATILE = [*PROVENANCE]
"""Columns in which two runs of one sweep may differ."""


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str
    seconds: float

    def __str__(self) -> str:
        return f"exit {self.status} after {self.seconds:.1f} s\n{self.out}\n{self.err}"


class Sweep:
    """`python -m MODULE NAME --preset PRESET ARGUMENTS`, leading a process group of its own."""

    def __init__(
        self, store: Path | str, arguments: Sequence[str], name: str, preset: str, cores: int, module: str
    ) -> None:
        _list_fonts()
        self.store, self._begun = store, time.monotonic()
        command = [sys.executable, "-m", module, name, "--preset", preset, "--store", str(store), *arguments]
        self._out, self._err = (Path(tempfile.mkstemp(suffix=f".{stream}")[1]) for stream in ("out", "err"))
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env=environment(cores),
            )
        self._seen: dict[int, psutil.Process] = {}

    def processes(self) -> list[psutil.Process]:
        """All its living descendants, including those whose parents have died."""
        children: dict[int, list[psutil.Process]] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess):
                children.setdefault(process.ppid(), []).append(process)
        parents = [self._process.pid, *(pid for pid, process in self._seen.items() if _lives(process))]
        while parents:
            new = [child for child in children.get(parents.pop(), ()) if child.pid not in self._seen]
            self._seen |= {child.pid: child for child in new}
            parents += [child.pid for child in new]
        return [process for process in self._seen.values() if _lives(process)]

    @property
    def printed(self) -> str:
        """What it has written to stdout so far."""
        return self._out.read_text()

    def trainers(self) -> list[psutil.Process]:
        """Its processes that are training a cohort."""
        return [process for process in self.processes() if title(process).startswith(TRAINERS)]

    def process(self, name: str) -> psutil.Process:
        """The process `raylet` or `gcs_server` of its own cluster."""
        return next(process for process in self.processes() if Path(title(process).split(" ", 1)[0]).name == name)

    def suspend(self) -> list[psutil.Process]:
        """Suspend its training processes until they are resumed or killed, and return them."""
        return suspend(self.trainers())

    def wait_until(self, condition: Callable[[], object], description: str) -> None:
        """Wait until `condition()` is true. AssertionError if the sweep ends first, or after TIMEOUT."""
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            self.processes()
            assert self._process.poll() is None, f"ended before {description}: {self.outcome()}"
            assert time.monotonic() < deadline, f"no {description} in {TIMEOUT:.0f} s"
            time.sleep(POLL)

    def running(self) -> bool:
        self.processes()
        return self._process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL to the driver alone."""
        self.processes()
        self._process.kill()
        self._process.wait()

    def send(self, number: signal.Signals, whole_group: bool = False) -> None:
        """Send a signal to the driver, or to its whole process group as a terminal does."""
        self.processes()
        if whole_group:
            os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)

    def outcome(self, timeout: float = TIMEOUT) -> Outcome:
        """Wait for its end. AssertionError if it still runs after `timeout` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        status, err = self._process.poll(), self._err.read_text()
        assert status is not None, f"has not ended in {timeout:.0f} s:\n{self.printed}\n{err}"
        return Outcome(status, self.printed, err, time.monotonic() - self._begun)

    def clean_up(self) -> None:
        """Kill all its processes that still run."""
        for process in [*self.processes(), self._process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


class Sweeps:
    """Starts sweeps, and kills those that are left."""

    def __init__(self) -> None:
        self._all: list[Sweep] = []

    def start(
        self,
        store: Path | str,
        *arguments: str,
        name: str = "anomaly_grid",
        preset: str = "digits",
        cores: int = 2,
        module: str = "sweeper.run",
    ) -> Sweep:
        """`cores` is the number of cores that the sweep sees, whatever the machine has. Each trains a cohort in a
        process of its own, whose start takes seconds."""
        self._all.append(Sweep(store, arguments, name, preset, cores, module))
        return self._all[-1]

    def run(
        self, store: Path | str, *arguments: str, name: str = "anomaly_grid", preset: str = "digits", cores: int = 2
    ) -> Outcome:
        return self.start(store, *arguments, name=name, preset=preset, cores=cores).outcome()

    def clean_up(self) -> None:
        for sweep in self._all:
            sweep.clean_up()


def sweeps() -> Iterator[Sweeps]:
    """Body of a fixture of any scope."""
    started = Sweeps()
    try:
        yield started
    finally:
        started.clean_up()


def rows(store: Path, name: str = "anomaly_grid") -> pd.DataFrame:
    """Rows that plain pandas reads, by trial. AssertionError if a trial has two rows."""
    frame = pd.read_parquet(store / f"trials/sweep={name}")
    assert frame["trial_id"].is_unique, frame["trial_id"].value_counts().head()
    return frame.set_index("trial_id").sort_index()


def row_files(store: Path, name: str = "anomaly_grid") -> list[Path]:
    """Files of rows that readers see."""
    return [path for path in store.glob(f"trials/sweep={name}/*.parquet") if not path.name.startswith(".")]


def assert_same_results(left: pd.DataFrame, right: pd.DataFrame) -> None:
    """Assert that every trial, hyperparameter and metric is equal to the last bit."""
    pd.testing.assert_frame_equal(left.drop(columns=VOLATILE), right.drop(columns=VOLATILE), check_exact=True)


def survivors(sweep: Sweep, seconds: float = 180.0, ignored: tuple[str, ...] = ()) -> list[str]:
    """Titles of its processes that still run after `seconds`, apart from those whose titles begin with `ignored`."""
    deadline = time.monotonic() + seconds
    while True:
        titles = [title for title in map(title, sweep.processes()) if not (ignored and title.startswith(ignored))]
        if not titles or time.monotonic() > deadline:
            return titles
        time.sleep(POLL)


def environment(cores: int) -> dict[str, str]:
    """Environment of a process that sees `cores` cores."""
    paths = [os.environ.get("PYTHONPATH", ""), str(ROOT / "tests/end_to_end/cores")]
    counted = {"CORES": str(cores), "RAY_USE_MULTIPROCESSING_CPU_COUNT": "1"}
    return dict(os.environ) | counted | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}


def _list_fonts() -> None:
    """Let matplotlib list the machine's fonts once in a run of the tests. If that takes more than five seconds,
    matplotlib writes a warning to stderr, which a test would take for one of the sweep's."""
    folder = os.environ.get("MPLCONFIGDIR")
    if folder and not list(Path(folder).glob("fontlist-*.json")):
        subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], check=True, capture_output=True)


def suspend(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Suspend those processes that still exist. Returns all of them."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
    return list(processes)


def resume(processes: Sequence[psutil.Process]) -> None:
    """Resume those processes that still exist."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def title(process: psutil.Process) -> str:
    """Its command line, where Ray's workers write what they do."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


class Listener(NamedTuple):
    process: str
    address: str
    port: int


def listening(processes: Iterable[psutil.Process]) -> set[Listener]:
    """All ports at which the processes listen."""
    listeners: set[Listener] = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            for connection in process.net_connections(kind="inet"):
                if connection.status == psutil.CONN_LISTEN:
                    address, port = connection.laddr
                    listeners.add(Listener(process.name(), address.removeprefix("::ffff:"), port))
    return listeners


def tells_metrics(port: int) -> bool:
    """Whether this port of the loopback serves Ray's metrics without a token."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):  # a gRPC port, or closed meanwhile
        return False
    finally:
        connection.close()
