"""What a command does when other drivers run the same sweep on the same store: it shares, waits, or is refused."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

from sweeper.errors import StoreError
from sweeper.planning.plan import Plan
from sweeper.storage.files import Files
from sweeper.storage.lease import Driver, Drivers, Lease

POLL_SECONDS = 2.0
"""Seconds between two reads of the leases of other drivers."""
MOST_NAMED = 3
"""Most drivers that a line names."""
WAIT, AGAIN = "--wait waits for its end", "try again when it has ended"
"""What a run can do, and what other commands can."""


class OtherDriver(StoreError):
    """Another driver has what this command needs for itself."""


def wait_for_others(drivers: Drivers, say: Callable[[str], None], check: Callable[[], None]) -> bool:
    """Wait until no other driver runs the sweep. Returns whether there was one. Calls `check` between two reads, which
    raises KeyboardInterrupt if this process was asked to stop."""
    announced = False
    while others := drivers.living():
        if not announced:
            say(f"waiting for another driver of this sweep: {named_drivers(others)}")
        announced = True
        drivers.runtime.sleep(POLL_SECONDS)
        check()
    return announced


def share(lease: Lease, plan: Plan, fresh: bool, say: Callable[[str], None], check: Callable[[], None]) -> None:
    """Say who else runs the sweep. Raises OtherDriver if it cannot be shared: a study has one driver, and so has a
    sweep with `--fresh`; and none may begin while a command has the sweep for itself. Calls `check` as
    `wait_for_others` does."""
    studies = {study_run.id for study_run in plan.study_runs}
    law = "a sweep must not run while its results are removed, merged, set aside or brought back"
    refuse_others(lease, law, WAIT, lambda driver: driver.lease.alone, check)
    if fresh:
        refuse_others(lease, "--fresh needs the sweep for itself", WAIT, check=check)
    while not lease.claim(studies):
        law = "a search needs its studies for itself"
        refuse_others(lease, law, WAIT, lambda driver: not studies.isdisjoint(driver.lease.claims), check)
    if others := lease.living():
        left = "" if studies else "; what it has begun is left to it"
        say(f"another driver runs this sweep, too: {named_drivers(others)}{left}")


def refuse_others(
    drivers: Drivers,
    law: str,
    remedy: str,
    which: Callable[[Driver], bool] = lambda driver: True,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Raise OtherDriver if another driver runs the sweep, of those for which `which` returns True.

    A driver on another machine may have died, which shows within a minute. Calls `check` as `wait_for_others`
    does.
    """
    while others := [*filter(which, drivers.living())]:
        if any(other.proven for other in others):
            raise OtherDriver(f"{law}, but another driver runs it: {named_drivers(others)}; {remedy}")
        drivers.runtime.sleep(POLL_SECONDS)
        check()


@contextlib.contextmanager
def alone(files: Files, sweep: str, command: str, law: str) -> Iterator[None]:
    """Context in which a command that is no run has a sweep for itself: no driver runs it, and none may begin. Both
    write their leases before they look at the others', so one of two that begin at once sees the other. Raises
    OtherDriver."""
    files.pin_folder()
    lease = Lease(files, sweep, command, alone=True)
    lease.open()
    with contextlib.closing(lease):
        refuse_others(lease, law, AGAIN)
        yield


def describe_driver(driver: Driver) -> str:
    """A line about another driver, for `--plan`."""
    unsure = "" if driver.proven else "; if it has died, its trials are free a minute after its last sign"
    return f"{driver}{unsure}"


def named_drivers(drivers: Sequence[Driver]) -> str:
    """Return which drivers these are, in a line."""
    more = f"; and {len(drivers) - MOST_NAMED} more" if len(drivers) > MOST_NAMED else ""
    return "; ".join(map(str, drivers[:MOST_NAMED])) + more
