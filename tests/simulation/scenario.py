"""What a world is: a sweep, a cluster, a store, and what goes wrong, all drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from sweeper.packing.cluster import DeviceKind
from tests.simulation import files, sweeps
from tests.simulation.backend import MISHAPS, OF_MACHINES, Machines, Mishaps, poison_of
from tests.simulation.files import Faults
from tests.simulation.stored import Expected

CORES = Machines((DeviceKind(False, "", (2,)),))
CLUSTERS = (
    *(CORES, CORES, Machines((DeviceKind(False, "", (1,)),)), Machines((DeviceKind(False, "", (4, 2)),))),
    Machines((DeviceKind(False, "", (2,)),), "simulated:6379"),
    Machines((DeviceKind(True, "A100", (2,), 8.0), DeviceKind(True, "T4", (1, 1), 4.0))),
    Machines((DeviceKind(True, "T4", (1,), 4.0, on_demand=True),), "simulated:6379"),
)
"""Clusters that worlds draw."""
TELLS_APART = ("grid", "grids", "patient", *sweeps.FORMS, *sweeps.OF_ALL, "impatient")
"""Presets of grids, whose trials do not depend on each other."""
FUNCTIONS_SINCE = 1_796_000_000_000
"""The first seed of worlds that may draw functions, so that seeds below mean what they meant."""


COMMANDS = ("rm", "merge")
"""Commands that any world may have."""


@dataclass(frozen=True)
class Command:
    """A command beside the drivers of a session."""

    name: str
    """One of `COMMANDS`, or `restore`."""
    after: float
    """Seconds after the beginning of the session."""
    die_at: tuple[int, bool] | None = None
    """As that of a driver."""


@dataclass
class Session:
    """Drivers that run at the same time."""

    drivers: int = 1
    die_at: tuple[tuple[int, bool] | None, ...] = (None, None)
    """For each: number of the operation at which it dies, and whether that takes effect."""
    signal_at: float | None = None
    """Seconds after which the first gets a signal."""
    unheard: bool = False
    """Whether what the signal raises is lost in foreign code."""
    sleeps: tuple[float, float] = (0.0, 0.0)
    """From when until when the machine of the first sleeps, in seconds."""
    falls_asleep: tuple[int, float] | None = None
    """Number of the operation at which the machine of the first falls asleep, and the seconds for which it sleeps."""
    fresh: bool = False
    narrow: bool = False
    """Whether the request is for one seed alone."""
    preset: str | None = None
    """Another preset, whose trials the request's own has, too."""
    cohort: int | None = None
    """Another size of cohorts than the request's."""
    hours: float | None = None
    machines: Machines | None = None
    """Another cluster than the scenario's."""
    elsewhere: bool = False
    """Whether it is on another machine than the session before."""
    commands: tuple[Command, ...] = ()


@dataclass
class Scenario:
    """What a world is."""

    kind: sweeps.Kind
    store: files.Kind = files.OBJECTS
    machines: Machines = CORES
    faults: Faults = field(default_factory=Faults)
    mishaps: Mishaps = field(default_factory=Mishaps)
    sessions: list[Session] = field(default_factory=list)
    """What happens before the last driver, which nothing disturbs."""
    jumps: bool = False
    """Whether the wall clock jumps."""
    merging: bool = False
    """Whether two files are many, so that they are merged."""
    save_every: float = 0.0
    reports: bool = False
    """Whether tables and pages are written, which takes a second."""
    figures: bool = False
    """Whether tables and heatmaps are written at the end of a run, which takes 40 ms, but no pages."""
    retries: int = 3
    step_timeout: float = 600.0
    refuses: float = 0.0
    """Probability that a call of the tracker fails; 0 without a tracker."""


def drawn(
    random: Random, kinds: Random, functions: Random | None, expected: Callable[[Scenario], Expected]
) -> Scenario:
    """The scenario of a world. Each has few kinds of what can happen, and much of these: then they meet. `kinds`
    decides whether its sweep is one of `sweeps.LATER`, and `functions`, where there is one, whether its trials are
    functions. `expected`: the end of a scenario that nothing disturbs."""

    def some(share: float) -> bool:
        return random.random() < share

    scenario = Scenario(random.choice(sweeps.KINDS), random.choice((files.OBJECTS, files.OBJECTS, files.SHARE)))
    if kinds.random() < 0.3:
        scenario.kind = kinds.choice(sweeps.LATER)
    of_functions = functions is not None and functions.random() < 0.4
    if functions and of_functions:
        scenario.kind = functions.choice(sweeps.OF_FUNCTIONS)
    scenario.machines, grid = random.choice(CLUSTERS), scenario.kind.preset in TELLS_APART
    scenario.retries, scenario.save_every = random.choice((0, 1, 1, 3)), random.choice((0.0, 0.0, 1e9))
    if functions and of_functions and functions.random() < 0.3:
        scenario.save_every = 20.0
    mishaps, faults = scenario.mishaps, scenario.faults
    if some(0.7):
        for name in random.sample(OF_MACHINES if some(0.2) else MISHAPS, random.choice((1, 2, 3))):
            setattr(mishaps, name, random.choice((0.01, 0.05)))
    mishaps.epoch_seconds = random.choice((3.0, 10.0, 30.0))
    mishaps.delay, mishaps.twice = random.choice((0.0, 0.1, 3.0)), random.choice((0.0, 0.0, 0.2))
    if grid and some(0.3):
        trained = [row for row in expected(scenario).rows.values() if row["status"] == "finished"]
        mishaps.poisoned, mishaps.poisoned_in = frozenset({poison_of(random.choice(trained))}), random.choice((0, 1))
        mishaps.poisoned_in = 0 if of_functions else mishaps.poisoned_in  # some have one epoch
    if some(0.5):
        for name in random.sample(("fail", "fail", "lie", "lie", "silent", "slow"), 2):
            setattr(faults, name, random.choice((0.02, 0.06) if name in ("fail", "lie") else (0.003, 0.01)))
        if some(0.3):
            begin = random.uniform(0.0, 200.0)
            faults.outage = begin, begin + random.choice((3.0, 20.0, 300.0))
    several, cuts, limited = some(0.6 if grid else 0.15), some(0.3), some(0.2)
    elsewhere, fresh, signals, moves, sleeps = some(0.4), some(0.25), some(0.25), some(0.2), several and some(0.25)
    narrow = grid and some(0.6 if fresh else 0.2)
    if sleeps and some(0.7):  # what fails while its driver sleeps
        scenario.retries, mishaps.raises = 0, 0.05
    mean = random.choice((15, 40, 80))
    for number in range(random.choice((1, 1, 2, 2, 3))):
        session = Session(2 if several and some(0.8) else 1, elsewhere=elsewhere and some(0.5))
        session.die_at = tuple(
            (int(random.expovariate(1 / mean)) + 1, some(0.5)) if some(share) else None for share in (0.6, 0.1)
        )
        if signals and some(0.7):
            session.signal_at, session.unheard = random.expovariate(1 / 40), some(0.5)
        if grid and cuts and some(0.7):
            session.cohort = random.choice((1, 2, 4))
        session.narrow = narrow and some(0.6)
        session.machines = random.choice(CLUSTERS[:4]) if grid and moves and scenario.machines in CLUSTERS[:4] else None
        session.hours = random.choice((0.01, 0.02)) if limited and some(0.7) else None
        session.fresh = fresh and number > 0 and some(0.8)
        if session.fresh:
            session.drivers = 1
        elif session.drivers == 2 and sleeps:
            begin = random.uniform(2.0, 60.0)
            session.sleeps = begin, begin + random.uniform(100.0, 400.0)
        scenario.sessions.append(session)
    if fresh:
        first = Session(narrow=narrow and some(0.5))
        if some(0.5):
            first.die_at = (random.randint(20, 120), False), None
        scenario.sessions.insert(0, first)
    scenario.merging, scenario.jumps = some(0.4), some(0.15)
    scenario.step_timeout = random.choice((60.0, 600.0))
    scenario.reports = some(0.01)
    # What worlds have since is drawn last, so that seeds mean what they meant.
    if scenario.kind.preset == "grids" and scenario.kind.keep.trials == "best" and some(0.7):
        scenario.sessions = [Session(preset="grid"), *scenario.sessions, Session(fresh=True)]
    if several and grid and not sleeps and not scenario.store.staleness and some(0.3):
        asleep = random.randint(3, 40), random.uniform(60.0, 300.0)
        place = 1 if scenario.sessions[0].preset else 0
        scenario.sessions.insert(place, Session(2, falls_asleep=asleep, cohort=1))
        mishaps.epoch_seconds = 3.0
    if some(0.1):
        scenario.refuses = random.choice((0.2, 0.5))
    return scenario


def add_commands(scenario: Scenario, random: Random, restores: Random) -> None:
    """Add commands to the sessions of a world whose store answers and whose machines do not sleep. `restores` decides
    on those that bring back what `--fresh` has archived."""
    asleep = any(session.sleeps[1] or session.falls_asleep for session in scenario.sessions)
    if asleep or scenario.faults.silent or scenario.faults.outage[1]:
        return
    if any(session.fresh for session in scenario.sessions) and restores.random() < 0.5:
        for session in scenario.sessions[1:]:
            session.commands += (_command(restores, ("restore",)),)
    if random.random() >= 0.2:
        return
    names = COMMANDS[:1] if scenario.mishaps.poisoned else COMMANDS  # the other store's trials have all been trained
    for session in scenario.sessions:
        for _ in range(random.choice((0, 1, 1, 2))):
            session.commands += (_command(random, names),)


def _command(random: Random, names: Sequence[str]) -> Command:
    after = random.choice((random.uniform(0.0, 3.0), random.expovariate(1 / 100)))
    die_at = (int(random.expovariate(1 / 20)) + 1, random.random() < 0.5) if random.random() < 0.4 else None
    return Command(random.choice(names), after, die_at)
