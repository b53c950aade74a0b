"""The command `sweeper`: the table of its commands, and how each of them begins and ends."""

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sweeper.errors import SpecError, check_working_folder, error_line
from sweeper.execution.signals import exit_at_signals
from sweeper.execution.startup import begin_collection, delay_collection, end_process
from sweeper.printing import print
from sweeper.version import code_version
from trainables.validation import unknown


@dataclass(frozen=True)
class Subcommand:
    """A command: a module with the function `main`, which takes the arguments and returns the exit status."""

    about: str
    module: str = ""
    """By default that of its name in `sweeper.commands`."""
    imports_later: bool = False
    """Whether it imports PyTorch when it has read its arguments. Garbage is collected once a run trains, not before."""
    interruptible: bool = False
    """Whether signals raise KeyboardInterrupt in it, as everywhere in Python. Others end at once, but for what handles
    signals itself."""


COMMANDS: Mapping[str, Subcommand] = {
    "run": Subcommand("run a sweep, or continue it", imports_later=True),
    "plan": Subcommand("print what a run would do, how long it would take and what it would cost", imports_later=True),
    "list": Subcommand("list the sweeps and their presets, or what a store holds"),
    "merge": Subcommand("add the rows of one store to another"),
    "rm": Subcommand("remove a sweep, or a request of one, from a store"),
    "describe": Subcommand("describe a method and its keys, a data set, a metric or a sweep"),
    "restore": Subcommand("bring back the rows that a run with --fresh archived"),
    "trial": Subcommand(
        "train one trial in this process: debug it, profile it, overfit a few examples", interruptible=True
    ),
    "best": Subcommand("say which setting is best and where its model is; train it again with fresh seeds"),
    "table": Subcommand("print the tables of a request as Markdown, HTML, LaTeX or CSV"),
    "figure": Subcommand("draw the heatmaps, trajectories and searches of a request as PDF, SVG or PNG"),
    "compare": Subcommand("compare two requests, presets or stores trial by trial"),
    "claims": Subcommand("judge the claims of the papers by the rows of a store"),
    "report": Subcommand("write what a paper reports beside what a store says, as HTML or Markdown"),
    "export": Subcommand("write a trained model to a file"),
    "inspect": Subcommand("learn what is normal in a folder of images, and say which defects are found"),
    "score": Subcommand("score image files by a trained model, and flag those that are unlike its training images"),
    "evaluate": Subcommand("evaluate the kept models of a sweep on other data, without training"),
    "view": Subcommand("serve the pages of a store's sweeps, also while they run"),
    "track": Subcommand("send a store's trials to MLflow, W&B or TensorBoard, also while they train"),
    "submit": Subcommand(
        "run a sweep on a Ray cluster, or with --slurm on SLURM, as a job",
        "sweeper.submission.submit",
        interruptible=True,
    ),
    "completion": Subcommand("print a script that completes commands in bash or zsh"),
}
EXIT_WRONG = 2


def main() -> None:
    """Run the command line of this process; it ends with the command's status."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h", "help"):
        print(_usage())
    elif name == "--version":
        print(f"sweeper {code_version()}")
    elif name in COMMANDS:
        start(name, arguments)
    else:
        _refuse(SpecError(unknown("command", name, list(COMMANDS))))


def start(name: str, arguments: Sequence[str]) -> NoReturn:
    """Run a command, and end this process with its status. Signals end it at once while its modules are imported."""
    try:
        check_working_folder()
    except SpecError as error:
        _refuse(error)
    command = COMMANDS[name]
    if not command.interruptible:
        exit_at_signals(last_line="interrupted\n")
    delay_collection()
    module = module_of(name)
    if not command.imports_later:
        begin_collection()
    end_process(module.main(arguments))


def module_of(name: str) -> Any:
    """Import the module of a command."""
    return importlib.import_module(COMMANDS[name].module or f"sweeper.commands.{name}")


def _refuse(error: SpecError) -> NoReturn:
    print(error_line(error), file=sys.stderr)
    sys.exit(EXIT_WRONG)


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.about}" for name, command in COMMANDS.items()]
    return "\n".join(
        ["usage: sweeper COMMAND ..., where COMMAND is one of", *lines, "sweeper COMMAND --help says more."]
    )
