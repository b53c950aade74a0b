"""A SLURM of one machine: `sbatch`, `srun` and `scontrol` that run the script of a job here, for real.

A job has a folder `STATE/ID` with its script, the id of the process of its batch script (`pid`), how often it was
requeued (`restarts`) and its state (`state`). Every node of a job is this machine.
"""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

STATE = "FAKE_SLURM"
"""Environment variable: the folder of the jobs."""


def install(folder: Path) -> Path:
    """Make a folder of commands for PATH."""
    commands = folder / "bin"
    commands.mkdir(parents=True)
    for name in ("sbatch", "srun", "scontrol"):
        command = commands / name
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(__file__)} {name} "$@"\n')
        command.chmod(0o755)
    return commands


def sbatch(words: list[str]) -> int:
    """Take a job from standard input, start it, and print its id."""
    state, text = Path(os.environ[STATE]), sys.stdin.read()
    if "REFUSED" in text:
        print("sbatch: error: invalid partition specified: REFUSED", file=sys.stderr)
        return 1
    job = state / str(100 + len([*state.glob("[0-9]*")]))
    job.mkdir()
    (job / "script").write_text(text)
    subprocess.Popen([sys.executable, __file__, "run", job.name], start_new_session=True, stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    print(job.name)
    return 0


def run(job: Path) -> int:
    """Run the script of a job to its end, and again as long as it is requeued."""
    options = dict[str, str]()
    for line in (job / "script").read_text().splitlines():
        if line.startswith("#SBATCH --"):
            name, _, value = line.removeprefix("#SBATCH --").partition("=")
            options[name] = "".join(shlex.split(value))
    restarts, states = 0, job / "state"
    while True:
        environment = {
            **os.environ,
            "SLURM_JOB_ID": job.name,
            "SLURM_JOB_NODELIST": f"node[1-{options['nodes']}]",
            "SLURM_CPUS_ON_NODE": options.get("cpus-per-task", "1"),
            "SLURM_RESTART_COUNT": str(restarts),
        }
        states.write_text("RUNNING")
        (job / "restarts").write_text(str(restarts))
        with Path(options["output"].replace("%j", job.name)).open("a") as log:
            batch = subprocess.Popen(
                ["bash", str(job / "script")], cwd=options["chdir"], env=environment, stdout=log, stderr=log
            )
            (job / "pid").write_text(str(batch.pid))
            status = batch.wait()
        if states.read_text() != "REQUEUED":
            states.write_text(f"ENDED {status}")
            return status
        restarts += 1


def srun(words: list[str]) -> int:
    """Run a command once for each task, and pass SIGTERM on to them."""
    options = dict(word.removeprefix("--").partition("=")[::2] for word in words if word.startswith("--"))
    command = words[next(index for index, word in enumerate(words) if not word.startswith("--")) :]
    tasks = [subprocess.Popen(command) for _ in range(int(options["ntasks"]))]

    def end(number: int, frame: FrameType | None) -> None:
        for task in tasks:
            task.terminate()

    signal.signal(signal.SIGTERM, end)
    return max(task.wait() for task in tasks)


def scontrol(words: list[str]) -> int:
    state = Path(os.environ[STATE])
    match words:
        case ["show", "hostnames", nodes]:
            count = int(nodes.rpartition("-")[2].rstrip("]"))
            print("\n".join(f"node{number}.that-no-dns-knows" for number in range(1, count + 1)))
        case ["show", "job", "--oneliner", job]:
            print(f"JobId={job} JobName=x JobState={(state / job / 'state').read_text()} Reason=None")
        case ["show", "node", "--oneliner", node]:
            print(f"NodeName={node} Arch=x86_64 NodeAddr=127.0.0.1 NodeHostName={node} State=MIXED")
        case ["requeue", job]:
            (state / job / "state").write_text("REQUEUED")
        case _:
            return 1
    return 0


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    if name == "run":
        sys.exit(run(Path(os.environ[STATE], arguments[0])))
    sys.exit({"sbatch": sbatch, "srun": srun, "scontrol": scontrol}[name](arguments))
