"""`sweeper best NAME`: which setting of a request is best; with `--again` it is trained with fresh seeds."""

import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any

from sweeper.commands.arguments import pairs, request_of, values_of_axis
from sweeper.commands.command_line import EXIT_OK, Parser, add_option, add_request, command_line
from sweeper.definition import registry
from sweeper.errors import SpecError
from sweeper.execution.signals import StopSignal
from sweeper.masking import masked
from sweeper.models import defaults_of
from sweeper.option_values import named
from sweeper.printing import json_text, print
from sweeper.report.answers import find_answer
from sweeper.request import options as options_of_run
from sweeper.storage.files import Files

ABOUT = (
    "Say which setting of a request is best: the sentence that heads its page, the command that trains it again, and "
    "where its model is."
)
EXITS = "Exit status: 0, or 2 for a wrong request, said in one line; with --again that of sweeper run."
OF_RUN = (
    *("measure", "node_price", "hours", "cost", "order", "cohort", "stack", "gpu_fraction", "gpu_memory"),
    *("address", "debug", "retries", "save_every", "step_timeout", "keep", "spread", "alarm_rate", "compile", "track"),
    *("wait", "fresh"),
)
"""Options of a run that `--again` takes. The others say what is trained, which the best settings do here."""


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    parser = Parser("best", ABOUT, EXITS)
    add_request(parser)
    parser.add_argument("--metric", metavar="NAME", help="by this metric (default: the preset's)")
    data = partial(named, "--data", noun="a folder")
    parser.add_argument("--data", type=data, metavar="DIR", help="folder of the data sets")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object; with --again one for each event of the run"
    )
    again = parser.add_argument_group("with fresh seeds")
    again_help = (
        "train the best setting of each study and data set with these values, which no trial of the request has, such "
        "as seed=1..10, and print the table of the means; the same command continues"
    )
    again.add_argument("--again", metavar="KEY=V1,V2", help=again_help)
    method_help = "code of your own that may be imported (again for more); that of a sweep's file may be, too"
    again.add_argument("--method", action="append", default=[], metavar="MODULE:NAME", help=method_help)
    again.add_argument("--plan", action="store_true", help="print what would be trained, and train nothing")
    for name in OF_RUN:
        add_option(again, options_of_run()[name], options_of_run()[name].text)
    options = parser.parse_args(arguments)
    if options.again is not None:
        return _train_again(vars(options), arguments)
    if given := [name for name in ("method", "plan", *OF_RUN) if getattr(options, name, None)]:
        raise SpecError(f"--{given[0].replace('_', '-')} requires --again")
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


def _train_again(options: dict[str, Any], arguments: Sequence[str]) -> int:
    """Train the best settings with fresh seeds, or print what would be trained. Returns the exit status."""
    from sweeper.commands.again import Again, asked_again  # here: they import PyTorch
    from sweeper.commands.plan import print_plan
    from sweeper.commands.sweep_run import SweepRun

    stopping = StopSignal()
    with stopping.on_signals():
        ((key, text),) = pairs("--again", [options["again"]]).items()
        again = Again(
            key, values_of_axis("again", key, text), options["changes"], options["metric"], tuple(options["method"])
        )
        values = {
            name: options[name] for name in ("name", "preset", "store", "plan", "json", *OF_RUN) if name in options
        }
        if options["data"] is not None:
            data = options_of_run()["data"]
            values["data"] = data.read(data.flag, options["data"]) if data.read else options["data"]
        request, sentences = asked_again(request_of(values), again)
        if not request.json:
            print("\n".join(sentences))
        if request.plan:
            print_plan(request)
            return EXIT_OK
        command = ["sweeper", "best", *(word for word in arguments if word != "--fresh")]
        return SweepRun.planned(request).begin(stopping).execute(masked(shlex.join(command)))
