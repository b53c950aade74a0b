"""A driver that trains in its own process and is held at its second cohort: `python -m tests.end_to_end.held NAME ...`,
as `python -m sweeper.run NAME ...`. It goes on once the file `STORE.go` exists. Meanwhile it renews its lease."""

import itertools
import sys
import tempfile
import time
from pathlib import Path

from sweeper.commands import run
from tests.end_to_end.sweeps import POLL
from tests.fake_executor import without_ray
from trainables.worker.messages import CohortTask

HELD = "held at a cohort"
"""What it prints then."""


def signal_of(store: Path) -> Path:
    """The file that lets it go on."""
    return store.with_name(f"{store.name}.go")


def main(arguments: list[str]) -> int:
    go = signal_of(Path(arguments[arguments.index("--store") + 1]))
    attempts = itertools.count(1)

    def hold(task: CohortTask) -> None:
        if next(attempts) == 2:
            print(HELD, flush=True)
            while not go.exists():
                time.sleep(POLL)

    with without_ray(Path(tempfile.mkdtemp()), hold):
        return run.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
