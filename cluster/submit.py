"""Send a sweep to a Ray cluster as a job, follow it, and end with its exit status: a thin front of Ray's job API."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster import access, package
from cluster.checks import check
from cluster.command import Asked, parse
from cluster.entrypoint import entrypoint
from cluster.jobs import STOP_SECONDS, End, Jobs, connect
from sweeper.cli import arguments as command
from sweeper.cli.arguments import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_WRONG
from sweeper.errors import ClusterError, JobLost, StoreError
from sweeper.execution.stop_signal import StopSignal
from sweeper.spec import SpecError
from sweeper.spec.request import Request
from sweeper.storage.io.files import Files

SECOND_THOUGHTS = 5
"""Seconds after Ctrl-C in which another one stops the job."""
CODE = "sweeper/run.py"
DEFAULTS = ("results", "data")
"""Folders of stores and data beside the code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: that of the sweep once there is one. What is not the job's own goes to stderr."""
    try:
        asked = parse(sys.argv[1:] if arguments is None else arguments)
        address = access.address(asked.address, os.environ)
        access.check_token(os.environ, Path.home())
        if asked.stop:
            return _stop(connect(address), asked.stop)
        if asked.logs:
            return _look_on(connect(address), asked.logs)
        return _submit(asked, address)
    except (SpecError, ClusterError, StoreError) as error:
        _say(f"error: {error}")
        return EXIT_FAILED if isinstance(error, JobLost) else EXIT_WRONG
    except KeyboardInterrupt:
        _say("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # whoever read our output (`| head`) has gone; so do we, and the job goes on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def _submit(asked: Asked, address: str) -> int:
    """Check the request, send it, and look on."""
    request = command.parse(asked.words)
    folder = asked.working_dir.resolve()
    if not (folder / CODE).is_file():
        raise SpecError(f"--working-dir must be the folder of the code, with {CODE} in it, but got {folder}")
    notes = check(request)
    files = package.contents(folder, _left_out(request, folder))
    package.check_size(folder, files)
    if access.in_clear(address) and access.with_token(os.environ):
        notes.append(f"the token goes to {address} unencrypted; better forward its port to this machine, or use https")
    for note in notes:
        _say(f"note: {note}")
    jobs = connect(address)
    about = {} if request.plan else {"sweep": str(request.name), "store": Files(request.store).shown}
    _check_alone(jobs, about)
    job = f"{request.name}-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as scratch:
        package.pack(folder, files, packed := Path(scratch, "code.zip"))
        jobs.send(job, entrypoint(asked.words), packed, about)
    if not asked.wait:
        print(job)
        _say_how_to_go_on(jobs, job, asked.again)
        return EXIT_OK
    _say(f"job {job} is sent to {address}")
    return _look_on(jobs, job, asked.again)


def _left_out(request: Request, folder: Path) -> list[Path]:
    """Folders that hold stores and data."""
    named = [Path(request.data), *([] if "://" in request.store else [Path(Files(request.store).uri)])]
    return [path.resolve() for path in (*named, *(folder / name for name in DEFAULTS))]


def _check_alone(jobs: Jobs, about: Mapping[str, str]) -> None:
    """ClusterError where a job already does the same: two would train everything twice."""
    other = jobs.running(about) if about else None
    if other:
        raise ClusterError(
            f"one job at a time runs a sweep into a store, but {other} runs {about['sweep']} into {about['store']}; "
            f"--logs {other} follows it, --stop {other} stops it"
        )


def _look_on(jobs: Jobs, job: str, again: Sequence[str] = ()) -> int:
    """Follow the job to its end. Ctrl-C leaves it to itself; another one stops it."""
    stopping = StopSignal()
    try:
        with stopping.on_signals():
            jobs.end(job)  # better said now if there is no such job
            return _ended(job, jobs.follow(job, stopping.check))
    except KeyboardInterrupt:
        _say(f"\njob {job} goes on; Ctrl-C again within {SECOND_THOUGHTS} s stops it")
        _say_how_to_go_on(jobs, job, again)
    try:
        time.sleep(SECOND_THOUGHTS)
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        _say(f"\nstopping job {job}; it has {STOP_SECONDS} s to write what it has")
    jobs.stop(job)
    return _ended(job, jobs.follow(job))


def _stop(jobs: Jobs, job: str) -> int:
    """Stop the job and wait for its end."""
    end = jobs.end(job)
    if end is None:
        jobs.stop(job)
        end = jobs.wait(job)
    _ended(job, end)
    return EXIT_OK


def _ended(job: str, end: End) -> int:
    _say(f"job {job} {end.what}")
    return end.status


def _say_how_to_go_on(jobs: Jobs, job: str, again: Sequence[str]) -> None:
    where = [] if jobs.address == access.HERE else ["--address", jobs.address]
    commands = {"follow": ["--logs", job, *where], "stop": ["--stop", job, *where], "continue": again}
    for verb, words in commands.items():
        if words:
            _say(f"  {verb:<9} python -m cluster.submit {shlex.join(words)}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
