"""Sends a sweep to SLURM: the script of a job that brings its own Ray cluster (`slurm_job`), and its submission."""

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from sweeper.errors import ClusterError, SpecError, first_line
from sweeper.option_values import whole
from sweeper.printing import printable

NOTICE_SECONDS = 120
"""Seconds before the end of its time at which SLURM tells a job, so that its sweep saves what it has."""
TEXTS = ("partition", "account", "time")
"""Options that are passed on to sbatch as they are."""
CODE = str(Path(__file__).parents[2])
"""Folder of the code that submits a job, which runs the same unless another environment is asked for."""
TIME = r"(\d+-)?\d+(:\d+){0,2}"
"""A time as sbatch takes it: minutes, H:MM:SS, D-H:MM:SS and the like."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a job of SLURM. One that is not given is absent from what the parser returns."""
    add = partial(parser.add_argument_group("as a job of SLURM").add_argument, default=argparse.SUPPRESS)
    add("--slurm", action="store_true", help="submit a job of SLURM, whose nodes become a Ray cluster of its own")
    add("--dry-run", action="store_true", help="print the job's script, and submit nothing")
    add("--partition", metavar="NAME", help="partition of the job")
    add("--account", metavar="NAME", help="account that the job is charged to")
    add("--time", metavar="TIME", help="time of the job, as sbatch takes it: 4:00:00")
    add("--nodes", type=partial(whole, "--nodes", least=1), metavar="N", help="number of nodes (default: 1)")
    gpus = partial(whole, "--gpus-per-node", least=0)
    add("--gpus-per-node", type=gpus, metavar="N", help="GPUs of each node (default: none are asked for)")
    cpus = partial(whole, "--cpus-per-node", least=1)
    add("--cpus-per-node", type=cpus, metavar="N", help="CPUs of each node (default: whole nodes, which none share)")
    add("--sbatch", action="append", metavar="OPTION", help="another option of sbatch, such as mem=64G")
    add(
        "--before",
        action="append",
        metavar="COMMAND",
        help="a shell command for the job to begin with: module load cuda",
    )
    add("--venv", metavar="DIR", help="virtual environment of the job (default: that of this command)")
    no = "leave the job ended when its time is over or it is preempted (default: it requeues itself, and continues)"
    add("--no-requeue", action="store_true", help=no)


def check_options(options: argparse.Namespace) -> None:
    """Raise SpecError for options of SLURM that are wrong, or that cannot be combined."""
    given = vars(options)
    names = [name for name in _NAMES if name in given]
    if "slurm" not in given:
        if names:
            raise SpecError(f"--{names[0].replace('_', '-')} is an option of a job of SLURM; add --slurm")
        return
    others = ("address", "stop", "logs", "no_wait")
    if wrong := [f"--{name.replace('_', '-')}" for name in others if given[name]]:
        raise SpecError(f"--slurm cannot be combined with {wrong[0]}; squeue and scancel are for jobs of SLURM")
    texts = [(name, text) for name in (*TEXTS, "venv") if (text := given.get(name)) is not None]
    texts += [(name, text) for name in ("sbatch", "before") for text in given.get(name, ())]
    for name, text in texts:
        if not text.strip() or text != printable(text):
            raise SpecError(f"--{name} must be one printable line that is not empty, but got {text!r}")
    if "time" in given and not re.fullmatch(TIME, given["time"]):
        raise SpecError(f"--time must be minutes, H:MM:SS or D-H:MM:SS, but got {given['time']}")
    if "venv" in given and not (Path(given["venv"]) / "bin/python").exists():
        raise SpecError(f"--venv must be a virtual environment, with bin/python in it, but got {given['venv']}")


_NAMES = (*("dry_run", *TEXTS, "nodes", "gpus_per_node", "cpus_per_node", "sbatch", "before", "venv", "no_requeue"),)


def script(options: argparse.Namespace, words: Sequence[str], name: str, folder: Path) -> str:
    """The script of a job that runs a sweep with the arguments `words` in a `folder`, where its log is, too. Raises
    SpecError for a folder whose name is not printable: what follows a line break in it would be a command."""
    given, requeue = vars(options), "no_requeue" not in options
    cpus, gpus = given.get("cpus_per_node"), given.get("gpus_per_node")
    lines = {
        "job-name": name,
        "chdir": str(folder),
        "output": f"{str(folder).replace('%', '%%')}/{name}-%j.log",
        "open-mode": "append",
        "nodes": given.get("nodes", 1),
        "ntasks-per-node": 1,
        **({"exclusive": None, "mem": 0} if cpus is None else {"cpus-per-task": cpus}),
        **({} if gpus is None else {"gpus-per-node": gpus}),
        **{option: given[option] for option in TEXTS if option in given},
        **({"requeue": None} if requeue else {"no-requeue": None}),
        "signal": f"B:USR1@{NOTICE_SECONDS}",
    }
    for text in map(str, lines.values()):
        if text != printable(text):
            raise SpecError(f"a job of SLURM needs a folder with a printable name, but got {text!r}; use --working-dir")
    sbatch = [
        f"--{option}" if value is None else f"--{option}={shlex.quote(str(value))}" for option, value in lines.items()
    ]
    sbatch += [f"--{text.strip().lstrip('-')}" for text in given.get("sbatch", ())]
    python = Path(given["venv"]).absolute() / "bin/python" if "venv" in given else Path(sys.executable)
    job = [str(python), "-m", "sweeper.submission.slurm_job", *(["--requeue"] if requeue else []), "--", *words]
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {option}" for option in sbatch),
            *given.get("before", ()),
            f'export PATH={shlex.quote(str(python.parent))}:"$PATH"',
            *([] if "venv" in given else [f"export PYTHONPATH={shlex.quote(CODE)}${{PYTHONPATH:+:$PYTHONPATH}}"]),
            "# A Ray head on this node, and by srun a Ray node on each node; then `sweeper run` with these arguments.",
            f"exec {shlex.join(job)}",
            "",
        ]
    )


def send(text: str) -> str:
    """Submit a script, and return the id of its job. Raises ClusterError if SLURM does not take it."""
    try:
        sent = subprocess.run(["sbatch", "--parsable"], input=text, capture_output=True, text=True)
    except OSError as error:
        raise ClusterError(
            f"--slurm needs the command sbatch, as the login nodes of a cluster have it: {error}; --dry-run prints the "
            "script"
        ) from error
    if sent.returncode:
        raise ClusterError(f"SLURM refuses the job: {first_line(sent.stderr, 'it does not say why')}")
    return sent.stdout.strip().partition(";")[0]
