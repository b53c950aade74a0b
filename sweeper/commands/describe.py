"""`sweeper describe WHAT`: what a method, a data set, a key, a metric, a column or a sweep is."""

from collections.abc import Sequence

from sweeper.commands.arguments import DESCRIBED
from sweeper.commands.command_line import EXIT_OK, Parser, command_line
from sweeper.printing import print


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    parser = Parser("describe", f"Describe {DESCRIBED}.")
    parser.add_argument(
        "name", metavar="WHAT", help="a name, or keys, methods, datasets, metrics, scores, columns or ours"
    )
    print_description(parser.parse_args(arguments).name)
    return EXIT_OK


def print_description(name: str) -> None:
    """Print what has this name."""
    from sweeper.commands.descriptions import describe  # here: it imports PyTorch, which takes seconds

    print(describe(name))
