"""Command line that sends a sweep to a Ray cluster as a job, follows it, and exits with its status."""

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
"""Seconds after Ctrl-C during which another Ctrl-C stops the job."""
CODE = "sweeper/run.py"
"""File by which a folder of the code is recognised."""
DEFAULTS = ("results", "data")
"""Default folders of stores and data, beside the code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the sweep's exit status, or that of a failed submission.

    Standard output is the job's; messages of this process go to standard error.
    """
    try:
        asked = parse(sys.argv[1:] if arguments is None else arguments)
        address = access.address(asked.address, os.environ)
        access.check_token(os.environ, Path.home())
        if asked.stop:
            return _stop(connect(address), asked.stop)
        if asked.logs:
            return _follow(connect(address), asked.logs)
        return _submit(asked, address)
    except (SpecError, ClusterError, StoreError) as error:
        _say(f"error: {error}")
        return EXIT_FAILED if isinstance(error, JobLost) else EXIT_WRONG
    except KeyboardInterrupt:
        _say("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output (`| head`) has exited; the job goes on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def _submit(asked: Asked, address: str) -> int:
    """Check the request, send it as a job, and follow the job. Returns the exit status."""
    request = command.parse(asked.words)
    folder = asked.working_dir.resolve()
    if not (folder / CODE).is_file():
        raise SpecError(f"--working-dir must be the folder of the code, with {CODE} in it, but got {folder}")
    notes = check(request)
    files = package.contents(folder, _folders_left_out(request, folder))
    package.check_size(folder, files)
    if access.in_clear(address) and access.with_token(os.environ):
        notes.append(f"the token goes to {address} unencrypted; better forward its port to this machine, or use https")
    for note in notes:
        _say(f"note: {note}")
    jobs = connect(address)
    about = {} if request.plan else {"sweep": str(request.name), "store": Files(request.store).display_uri}
    _check_not_running(jobs, about)
    job = f"{request.name}-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as scratch:
        package.pack(folder, files, packed := Path(scratch, "code.zip"))
        jobs.send(job, entrypoint(asked.words), packed, about)
    if not asked.wait:
        print(job)
        _say_how_to_go_on(jobs, job, asked.again)
        return EXIT_OK
    _say(f"job {job} is sent to {address}")
    return _follow(jobs, job, asked.again)


def _folders_left_out(request: Request, folder: Path) -> list[Path]:
    """Absolute paths of the folders that hold stores and data, which are not sent."""
    requested = [Path(request.data), *([] if "://" in request.store else [Path(Files(request.store).uri)])]
    return [path.resolve() for path in (*requested, *(folder / name for name in DEFAULTS))]


def _check_not_running(jobs: Jobs, about: Mapping[str, str]) -> None:
    """Raise ClusterError if a job already runs the sweep into the store: two jobs would train everything twice."""
    other = jobs.running(about) if about else None
    if other:
        raise ClusterError(
            f"only one job at a time can run a sweep into a store, but {other} runs {about['sweep']} into "
            f"{about['store']}; --logs {other} follows it, --stop {other} stops it"
        )


def _follow(jobs: Jobs, job: str, again: Sequence[str] = ()) -> int:
    """Follow the job to its end and return its exit status. Ctrl-C detaches from it; a second Ctrl-C stops it."""
    stopping = StopSignal()
    try:
        with stopping.on_signals():
            jobs.end(job)  # raises at once if there is no such job
            return _report_end(job, jobs.follow(job, stopping.check))
    except KeyboardInterrupt:
        _say(f"\njob {job} goes on; Ctrl-C again within {SECOND_THOUGHTS} s stops it")
        _say_how_to_go_on(jobs, job, again)
    try:
        time.sleep(SECOND_THOUGHTS)
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        _say(f"\nstopping job {job}; it has {STOP_SECONDS} s to save its results")
    jobs.stop(job)
    return _report_end(job, jobs.follow(job))


def _stop(jobs: Jobs, job: str) -> int:
    """Stop the job and wait for its end."""
    end = jobs.end(job)
    if end is None:
        jobs.stop(job)
        end = jobs.wait(job)
    _report_end(job, end)
    return EXIT_OK


def _report_end(job: str, end: End) -> int:
    """Print how the job has ended and return its exit status."""
    _say(f"job {job} {end.what}")
    return end.status


def _say_how_to_go_on(jobs: Jobs, job: str, again: Sequence[str]) -> None:
    """Print the commands that follow the job, stop it, and continue its sweep."""
    address = [] if jobs.address == access.HERE else ["--address", jobs.address]
    commands = {"follow": ["--logs", job, *address], "stop": ["--stop", job, *address], "continue": again}
    for verb, words in commands.items():
        if words:
            _say(f"  {verb:<9} python -m cluster.submit {shlex.join(words)}")


def _say(line: str) -> None:
    """Print a line to standard error."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
