"""`sweeper best NAME`: which setting of a request is best."""

from collections.abc import Sequence
from functools import partial

from sweeper.commands.command_line import EXIT_OK, Parser, add_request, command_line
from sweeper.definition import registry
from sweeper.models import defaults_of
from sweeper.option_values import named
from sweeper.printing import json_text, print
from sweeper.report.answers import find_answer
from sweeper.storage.files import Files

ABOUT = (
    "Say which setting of a request is best: the sentence that heads its page, the command that trains it again, and "
    "where its model is."
)
EXITS = "Exit status: 0, or 2 for a wrong request, said in one line."


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    parser = Parser("best", ABOUT, EXITS)
    add_request(parser)
    parser.add_argument("--metric", metavar="NAME", help="by this metric (default: the preset's)")
    data = partial(named, "--data", noun="a folder")
    parser.add_argument("--data", type=data, metavar="DIR", help="folder of the data sets, for the printed commands")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    answer = find_answer(
        Files(options.store),
        options.name,
        preset=options.preset,
        changes=options.changes,
        metric=options.metric,
        data=options.data,
        defaults=defaults_of,
    )
    if options.json:
        print(json_text({**vars(answer), "choices": [*map(vars, answer.choices)]}), mask=False)
        return EXIT_OK
    lines = [line for choice in answer.choices for line in choice.lines]
    if answer.choices and not registry.is_findable(options.name):
        lines.append("to train it again, name the file of the sweep in place of its name: sweeper best FILE.py")
    print("\n".join([answer.head, answer.text, *lines]))
    return EXIT_OK
