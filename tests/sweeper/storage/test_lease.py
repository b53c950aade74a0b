"""Leases: who counts as alive, and that no two drivers hold one claim."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest

from sweeper.errors import StoreError
from sweeper.runtime import Machine, Runtime
from sweeper.storage.files import Files
from sweeper.storage.lease import TERM, Content, Drivers, Lease
from tests.cases import for_each
from tests.sweeper.storage.interleaved import Interleaving

ELSEWHERE = Machine("elsewhere", "1")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def opened(folder: Path, machine: Machine | None = None) -> Iterator[Lease]:
    lease = Lease(Files(folder), "s", "digits", machine=machine)
    lease.open()
    try:
        yield lease
    finally:
        lease.close()


def written(folder: Path, **changes: object) -> Drivers:
    """The drivers that a process sees beside a lease that says this. Without changes it is that of pytest's parent."""
    parent = psutil.Process().parent() or psutil.Process()
    here = Machine.here()
    content = Content(here.host, here.boot, parent.pid, parent.create_time(), "2026-01-01 00:00:00", "digits", ["a"])
    path = folder / ".drivers" / "s" / "other.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(replace(content, **changes))))  # type: ignore[arg-type]
    return Drivers(Files(folder), "s")


def leases(folder: Path) -> list[Path]:
    return sorted((folder / ".drivers" / "s").iterdir())


def test_a_lease_says_who_runs_what_since_when_and_goes_with_its_driver(tmp_path: Path) -> None:
    with opened(tmp_path) as lease:
        assert lease.claim(["a", "b"]) and lease.living() == []
        (other,) = Drivers(Files(tmp_path), "s").living()
        assert other.proven and sorted(other.lease.claims) == ["a", "b"]
        host, process = Machine.here().host, os.getpid()
        assert str(other).startswith(f"{host} (process {process}, since 20") and str(other).endswith(" UTC, digits)")
        assert Drivers(Files(tmp_path), "t").living() == [], "a lease is for one sweep"
    assert leases(tmp_path) == []


def test_what_another_driver_has_claimed_is_refused_and_nothing_of_it_is_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as first, opened(tmp_path) as second:
        assert first.claim(["a", "b"]) and second.claim(["c"])
        assert not second.claim(["b", "d"])
        assert [driver.lease.claims for driver in first.living()] == [["c"]]
        first.release(["b"])
        assert not second.claim(["b"]), "released, but not written yet: the rows may not have been looked for"
        first.renew()
        assert second.claim(["b"])
        assert first.is_first and not second.is_first


def test_an_ended_lease_stays_until_the_last_driver_has_ended(tmp_path: Path) -> None:
    """So that those that live learn that rows may have come."""
    with opened(tmp_path) as last:
        last.living()
        before = last.version
        with opened(tmp_path):
            pass
        assert last.living() == [] and last.version != before and len(leases(tmp_path)) == 2
    assert leases(tmp_path) == []


def test_a_process_that_lives_holds_its_claims_however_old_its_lease_is(tmp_path: Path) -> None:
    (driver,) = written(tmp_path).living()
    assert driver.lease.claims == ["a"] and driver.proven


@pytest.mark.parametrize("changes", [{"created": 1.0}, {"process": 2**22 + 1}, {"ended": True}])
def test_the_lease_of_a_process_that_is_gone_is_void(changes: dict[str, object], tmp_path: Path) -> None:
    assert written(tmp_path, **changes).living() == []


def test_a_killed_process_is_gone_before_its_parent_has_waited_for_it(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    try:
        created = psutil.Process(process.pid).create_time()
        assert written(tmp_path, process=process.pid, created=created).living()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
        assert written(tmp_path, process=process.pid, created=created).living() == []
    finally:
        process.wait()


def test_a_lease_that_this_process_has_left_open_is_void(tmp_path: Path) -> None:
    with opened(tmp_path) as left:
        assert left.claim(["a"])
        assert Drivers(Files(tmp_path, runtime=Runtime()), "s").living() == []


def test_a_driver_of_another_machine_counts_until_its_lease_has_not_changed_for_a_term(tmp_path: Path) -> None:
    clock = Clock()
    written(tmp_path, host="elsewhere")
    drivers = Drivers(Files(tmp_path), "s", clock=clock)
    (driver,) = drivers.living()
    assert not driver.proven
    clock.now = TERM - 1
    assert drivers.living()
    written(tmp_path, host="elsewhere", renewed=1)
    (driver,) = drivers.living()
    assert driver.proven
    clock.now += TERM - 1
    assert drivers.living()
    version = drivers.version
    clock.now += 1
    assert drivers.living() == [] and drivers.version != version
    written(tmp_path, host="elsewhere", renewed=2)
    assert drivers.living(), "it was only slow"


def test_a_driver_whose_claims_were_taken_over_can_claim_others(tmp_path: Path) -> None:
    """It was silent for a while, as in a suspended machine, and lives after all."""
    clock = Clock()
    silent, other = (
        Lease(Files(tmp_path), "s", machine=machine, clock=clock, renewal_seconds=1e6)
        for machine in (ELSEWHERE, Machine("third", "1"))
    )
    silent.open()
    other.open()
    assert silent.claim(["a"]) and not other.claim(["a"])
    clock.now = TERM
    assert other.claim(["a"]) and silent.claim(["b"]) and not silent.claim(["a"])
    silent.close()
    other.close()


@for_each("changes", [{"process": -1}, {"process": 0}, {"process": 2**31}, {"renewed": -1}])
def test_a_lease_of_odd_values_is_nobody_and_named(
    changes: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drivers = written(tmp_path, **changes)
    assert drivers.living() == [] and drivers.living() == []
    (line,) = capsys.readouterr().err.splitlines()
    assert "'.drivers/s/other.json' is damaged and void: " in line


def test_of_many_leases_those_written_last_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A driver that lives renews its own."""
    monkeypatch.setattr("sweeper.storage.lease.MOST", 3)
    drivers = written(tmp_path, host="elsewhere")
    (lease,) = leases(tmp_path)
    for number in range(50):
        (copy := lease.with_name(f"{number:03}.json")).write_bytes(lease.read_bytes())
        os.utime(copy, (1e9 + number, 1e9 + number))
    assert {driver.id for driver in drivers.living()} == {"other", "049", "048"}
    assert "has 51 leases of drivers; only the 3 that were written last are read" in capsys.readouterr().err


@for_each("content", [b"", b"{", b"[]", b'{"host": 1}', b"\xff" * 100, None])
def test_a_file_that_is_no_lease_is_nobody(content: bytes | None, tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / ".drivers" / "s" / "other.json"
    path.unlink()
    if content is None:
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    with opened(tmp_path) as lease:
        assert lease.living() == [] and lease.claim(["a"])


def test_a_store_that_is_gone_does_not_keep_a_driver_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("gone")

    lease = Lease(Files(tmp_path), "s")
    lease.open()
    monkeypatch.setattr(Files, "write", fail)
    lease.close()
    assert Drivers(Files(tmp_path), "s").living() == [], "void, since this process has closed it"


@pytest.mark.slow
@for_each("seed", range(30))
def test_no_order_of_reads_and_writes_gives_a_claim_to_two_drivers(seed: int, tmp_path: Path) -> None:
    """Three drivers on three machines claim random sets, hold them, and release them. A gate lets one of them do one
    operation of the store at a time, in a random order."""
    held: dict[str, str] = {}
    gained = 0

    def drive(name: str, files: Files, choice: random.Random) -> None:
        nonlocal gained
        lease = Lease(files, "s", machine=Machine(name, ""), renewal_seconds=1e6)
        lease.open()
        for _ in range(12):
            names = choice.sample("abcde", 2)
            if lease.claim(names):
                gained += 1
                for one in names:
                    assert one not in held, f"{name} and {held[one]} have {one}"
                    held[one] = name
                lease.living()  # others go on meanwhile
                for one in names:
                    del held[one]
                lease.release(names)
                lease.renew()
        lease.close()

    Interleaving(tmp_path, seed).run({name: drive for name in ("x", "y", "z")})
    assert gained >= 3 and leases(tmp_path) == []
