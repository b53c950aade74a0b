"""`python -m sweeper.best NAME`: which setting of a request is best."""

import os
import sys
from collections.abc import Sequence
from functools import partial

from sweeper.execution.signals import exit_at_signals

if __name__ == "__main__":
    exit_at_signals(last_line="interrupted\n")  # nothing is worth an orderly end

from sweeper.cli.parser import EXIT_OK, EXIT_WRONG, DefaultsFormatter, Parser, named
from sweeper.errors import SpecError, StoreError, error_line
from sweeper.execution.startup import end_process
from sweeper.report.answers import Answer, find_answer
from sweeper.spec import registry
from sweeper.storage.files import Files

ABOUT = (
    "Say which setting of a request is best: the sentence that heads its page, the command that trains it again, and "
    "where its model is."
)
EXITS = "Exit status: 0, or 2 for a wrong request, said in one line."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status."""
    parser = Parser(prog="python -m sweeper.best", description=ABOUT, epilog=EXITS, formatter_class=DefaultsFormatter)
    add = parser.add_argument
    add("name", metavar="NAME", help="the sweep: its name in the store, or its file or module")
    add("--preset", help="of this preset (default: of the request with the latest result)")
    add("--changes", metavar="TEXT", help="of the request that changes the preset so, e.g. epochs=5, as it is named")
    add("--metric", metavar="NAME", help="by this metric (default: the preset's)")
    store = partial(named, "--store", "a folder")
    add("--store", type=store, default="results", metavar="URI", help="folder or URI (s3, gs) of the results")
    try:
        options = parser.parse_args(arguments)
        answer = best(
            options.name, preset=options.preset, changes=options.changes, metric=options.metric, store=options.store
        )
        lines = (line for choice in answer.choices for line in choice.lines)
        print("\n".join([answer.head, answer.text, *lines]))
        return EXIT_OK
    except (SpecError, StoreError) as error:
        print(error_line(error), file=sys.stderr)
        return EXIT_WRONG


def best(
    name: str,
    *,
    preset: str | None = None,
    changes: str | None = None,
    metric: str | None = None,
    store: str | os.PathLike[str] = "results",
) -> Answer:
    """Return which setting of a request is best. See `sweeper.api.best`."""
    return find_answer(
        Files(store),
        registry.name_in_store(name),
        preset=preset,
        changes=changes,
        metric=metric,
        reference=name,
    )


if __name__ == "__main__":
    end_process(main())
