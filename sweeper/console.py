"""The command `sweeper`: `sweeper run NAME` is `python -m sweeper.run NAME`, and so on for its other commands."""

import os
import runpy
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from sweeper.errors import SpecError, check_working_folder, error_line
from sweeper.printing import print
from sweeper.version import code_version
from trainables.validation import unknown


@dataclass(frozen=True)
class Subcommand:
    """A command, which runs a module of its own."""

    module: str
    """What it runs. Where several commands have one module, `COMMAND` says which it is."""
    about: str


COMMANDS: Mapping[str, Subcommand] = {
    "run": Subcommand("sweeper.run", "run a sweep, or continue it"),
    "plan": Subcommand("sweeper.run", "print what a run would do, how long it would take and what it would cost"),
    "list": Subcommand("sweeper.stores", "list the sweeps and their presets, or what a store holds"),
    "merge": Subcommand("sweeper.stores", "add the rows of one store to another"),
    "rm": Subcommand("sweeper.stores", "remove a sweep, or a request of one, from a store"),
    "describe": Subcommand("sweeper.run", "describe a method and its keys, a data set, a metric or a sweep"),
    "restore": Subcommand("sweeper.run", "bring back the rows that a run with --fresh set aside"),
    "trial": Subcommand(
        "sweeper.trial", "train one trial in this process: debug it, profile it, overfit a few examples"
    ),
    "best": Subcommand("sweeper.best", "say which setting is best, how to train it again, and where its model is"),
    "table": Subcommand("sweeper.table", "print the tables of a request as Markdown, LaTeX or CSV"),
    "compare": Subcommand("sweeper.compare", "compare two requests, presets or stores trial by trial"),
    "claims": Subcommand("sweeper.claims.__main__", "judge the claims of the papers by the rows of a store"),
    "export": Subcommand("sweeper.export", "write a trained model to a file"),
    "evaluate": Subcommand("sweeper.evaluate", "evaluate the kept models of a sweep on other data, without training"),
    "view": Subcommand("sweeper.view", "serve the pages of a store's sweeps, also while they run"),
    "track": Subcommand("sweeper.track", "send a store's trials to MLflow, W&B or TensorBoard, also while they train"),
    "submit": Subcommand(
        "sweeper.submission.submit", "run a sweep on a Ray cluster, or with --slurm on SLURM, as a job"
    ),
    "completion": Subcommand("sweeper.completion", "print a script that completes commands in bash or zsh"),
}
COMMAND = "SWEEPER_COMMAND"
"""Environment variable, which `sweeper.cli.parser` reads: the command that the user typed, such as `sweeper run`."""
EXIT_WRONG = 2


def main() -> None:
    """Run the command line; the process exits with the command's status."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h", "help"):
        print(_usage())
        return
    if name == "--version":
        print(f"sweeper {code_version()}")
        return
    if name not in COMMANDS:
        print(f"error: {unknown('command', name, list(COMMANDS))}", file=sys.stderr)
        sys.exit(EXIT_WRONG)
    try:
        check_working_folder()
    except SpecError as error:
        print(error_line(error), file=sys.stderr)
        sys.exit(EXIT_WRONG)
    os.environ[COMMAND] = f"sweeper {name}"
    sys.argv[1:] = arguments
    runpy.run_module(COMMANDS[name].module, run_name="__main__", alter_sys=True)


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.about}" for name, command in COMMANDS.items()]
    return "\n".join(
        ["usage: sweeper COMMAND ..., where COMMAND is one of", *lines, "sweeper COMMAND --help says more."]
    )


if __name__ == "__main__":
    main()
