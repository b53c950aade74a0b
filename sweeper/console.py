"""The command `sweeper`: `sweeper run NAME` is `python -m sweeper.run NAME`, and so on for its other commands."""

import os
import runpy
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from sweeper.version import code_version


@dataclass(frozen=True)
class Command:
    """A command, which runs a module of its own."""

    module: str
    about: str
    options: tuple[str, ...] = ()
    """Arguments that come before those that the user types."""


COMMANDS: Mapping[str, Command] = {
    "run": Command("sweeper.run", "run a sweep, or continue it"),
    "list": Command("sweeper.run", "list the sweeps and their presets", ("--list",)),
    "describe": Command("sweeper.run", "describe a method and its keys, a data set or a metric", ("--describe",)),
    "view": Command("sweeper.view", "serve the pages of a store's sweeps, also while they run"),
    "export": Command("sweeper.export", "write a trained model to a file"),
    "compare": Command("sweeper.compare", "compare two requests, presets or stores trial by trial"),
    "claims": Command("sweeper.claims", "judge the claims of the papers by the rows of a store"),
    "submit": Command("cluster.submit", "run a sweep on a Ray cluster, as a job"),
}
COMMAND = "SWEEPER_COMMAND"
"""Environment variable, which `sweeper.cli.arguments` reads: the command that the user typed, such as `sweeper run`."""
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
        print(f"error: no command '{name}'; there are: {', '.join(COMMANDS)}", file=sys.stderr)
        sys.exit(EXIT_WRONG)
    command = COMMANDS[name]
    options = () if {"-h", "--help"}.intersection(arguments) else command.options
    os.environ[COMMAND] = f"sweeper {name}"  # what its usage line names
    sys.argv[1:] = [*options, *arguments]
    runpy.run_module(command.module, run_name="__main__", alter_sys=True)


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.about}" for name, command in COMMANDS.items()]
    return "\n".join(
        ["usage: sweeper COMMAND ..., where COMMAND is one of", *lines, "sweeper COMMAND --help says more."]
    )


if __name__ == "__main__":
    main()
