"""Command line that sends a sweep to a Ray cluster as a job, follows it, and exits with its status.

A request is checked on this machine first, as `sweeper plan` would: always its arguments, their keys and their
ranges. The store and the data may be visible to the cluster only. What depends on them is then left to the job, which
checks everything again before anything trains.
"""

import argparse
import contextlib
import os
import shlex
import sys
import tempfile
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sweeper.commands import arguments as run_arguments
from sweeper.commands.command_line import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_WRONG, Parser
from sweeper.definition import SpecError, registry, user_code
from sweeper.errors import ClusterError, JobLost, StoreError, error_line
from sweeper.execution.signals import StopSignal
from sweeper.masking import has_secret, masked, masked_url
from sweeper.printing import print
from sweeper.request import SHARED_STORE, Request
from sweeper.storage.files import Files
from sweeper.storage.store import Store
from sweeper.submission import package, slurm
from sweeper.submission.jobs import (
    LOCAL_DASHBOARD,
    STOP_SECONDS,
    End,
    Jobs,
    check_token,
    connect,
    dashboard_address,
    entrypoint,
    is_unencrypted,
    token_enabled,
)
from trainables.data.errors import DataError, DownloadError

NODE_DATA = "~/.cache/sweeper/data"
"""Default folder of the data sets on each machine of a cluster: a job's working directory is a temporary copy."""
ABOUT = (
    "Run a sweep on a Ray cluster, as a job. NAME and all other arguments are those of `sweeper run`. The "
    "job goes on without this terminal; when it has ended, the same command continues the sweep. On the machines of a "
    f"cluster --data is by default {NODE_DATA}."
)
STOP_WINDOW_SECONDS = 5
"""Seconds after Ctrl-C during which another Ctrl-C stops the job."""
CODE = "sweeper/run.py"
"""File by which a folder of the code is recognised."""
DEFAULTS = ("results", "data")
"""Default folders of stores and data, beside the code."""
ABSENT_FOLDER = f"{os.devnull}/absent"
"""A folder that cannot exist, so that nothing is downloaded into it."""


def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the sweep's exit status, or that of a failed submission.

    Standard output is the job's; messages of this process go to standard error.
    """
    try:
        options, run_words = parse(arguments)
        if "slurm" in options:
            return _submit_to_slurm(options, run_words, arguments)
        address = dashboard_address(options.address, os.environ)
        check_token(os.environ, Path.home())
        if options.stop:
            return _stop(connect(address), options.stop)
        if options.logs:
            return _follow(connect(address), options.logs)
        rerun = [word for word in arguments if word not in ("--fresh", "--no-wait")]
        return _submit(options, run_words, address, rerun)
    except (SpecError, ClusterError, StoreError) as error:
        _print_message(error_line(error))
        return EXIT_FAILED if isinstance(error, JobLost) else EXIT_WRONG
    except KeyboardInterrupt:
        _print_message("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output (`| head`) has exited; the job goes on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of this command, and all other arguments, which are those of `sweeper run`.

    Raises SpecError for wrong arguments; `--help` prints and exits.
    """
    exits = f"Exit status: that of the sweep. {run_arguments.EXITS}"
    parser = Parser("submit", ABOUT, exits, usage="%(prog)s NAME [arguments of sweeper run] [options]")
    parser.add_argument("--address", metavar="URL", help=f"the cluster's dashboard (default: {LOCAL_DASHBOARD})")
    folder_help = "folder of the code to send (default: the working folder if it has the code, else the installed code)"
    parser.add_argument("--working-dir", metavar="DIR", help=folder_help)
    parser.add_argument("--no-wait", action="store_true", help="print the job's id and exit")
    parser.add_argument("--stop", metavar="ID", help="stop a job; its sweep saves what it has")
    parser.add_argument("--logs", metavar="ID", help="follow a job from its beginning")
    slurm.add_options(parser)
    options, run_words = parser.parse_known_args(arguments)
    names_job = options.stop is not None or options.logs is not None
    if names_job and (run_words or options.no_wait or (options.stop is not None and options.logs is not None)):
        raise SpecError("--stop ID and --logs ID can be combined with --address only, but got more")
    if "" in (options.stop, options.logs):  # an unset shell variable
        raise SpecError("--stop and --logs must name a job, but got ''")
    slurm.check_options(options)
    return options, run_words


def _submit(options: argparse.Namespace, run_words: Sequence[str], address: str, rerun: Sequence[str]) -> int:
    """Check the request, send it as a job, and follow the job. Returns the exit status.

    `rerun` are the arguments of this command that continue the sweep after its job has ended.
    """
    if not any(word.partition("=")[0] == "--data" for word in run_words):
        run_words = [*run_words, "--data", NODE_DATA]
    request = run_request(run_words)
    folder, installed = Path(options.working_dir or ".").resolve(), False
    if not (folder / CODE).is_file():
        if options.working_dir is not None:
            raise SpecError(f"--working-dir must be the folder of the code, with {CODE} in it, but got {folder}")
        installed = True
    notes = check_request(request)
    name = registry.find(request.name).name
    if installed:
        folder, code = package.installed_code()
    else:
        code = package.contents(folder, _excluded_folders(request, folder))
    modules = [module for module in user_code.modules() if Path(module).parent != folder]
    own_files, own_secrets = package.user_files(modules)
    if secrets := [*code.secrets, *own_secrets]:
        notes.append(f"not sent, by names or contents that are those of secrets: {', '.join(secrets)}")
    if taken := sorted(own_files.keys() & code.files.keys()):
        raise SpecError(f"modules of your own must not be named as the code's, but got {', '.join(taken)}; rename them")
    run_words = [_reference(word, modules) if word == request.name else word for word in run_words]
    package.check_size(folder, code.files, own_files)
    if is_unencrypted(address) and token_enabled(os.environ):
        notes.append(f"the token goes to {address} unencrypted; better forward its port to this machine, or use https")
    for note in notes:
        _print_message(f"note: {note}")
    jobs = connect(address)
    metadata = {} if request.plan else {"sweep": name, "store": Files(request.store).display_uri}
    _check_not_running(jobs, metadata)
    job = f"{name}-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as scratch:
        package.pack(folder, code.files, packed := Path(scratch, "code.zip"), own_files)
        jobs.send(job, entrypoint(run_words), packed, metadata)
    if options.no_wait:
        print(job)
        _print_commands(jobs, job, rerun)
        return EXIT_OK
    _print_message(f"job {job} is sent to {address}")
    return _follow(jobs, job, rerun)


def _submit_to_slurm(options: argparse.Namespace, run_words: Sequence[str], rerun: Sequence[str]) -> int:
    """Check the request, and submit a job of SLURM that runs it in the working folder, which all nodes share. Prints
    the id of the job, which goes on by itself. `rerun` are the arguments of this command that continue the sweep."""
    request = run_request(run_words)
    if request.debug or request.address:
        raise SpecError("a job of SLURM has a Ray cluster of its own; leave out --debug and --address")
    folder = Path(options.working_dir or ".").resolve()
    if not folder.is_dir():
        raise SpecError(f"--working-dir must be a folder that all nodes share, but got {folder}")
    with contextlib.chdir(folder):
        store = request.store if "://" in request.store else os.path.abspath(os.path.expanduser(request.store))
        notes = check_request(replace(request, store=store, data=os.path.abspath(request.data)))
        name = registry.find(request.name).name
    text = slurm.script(options, run_words, name, folder)
    for note in notes:
        _print_message(f"note: {note}")
    if "dry_run" in options:
        if masked(text) != text:
            _print_message("note: the script is printed without its secrets")
        print(text, end="")
        return EXIT_OK
    job = slurm.send(text)
    _print_message(f"job {job} is sent to SLURM")
    print(job, flush=True)
    again = [word for word in rerun if word != "--fresh"]
    _print_message(f"  follow    tail -F {shlex.quote(str(folder / f'{name}-{job}.log'))}")
    _print_message(f"  stop      scancel {job}")
    _print_message(f"  continue  sweeper submit {shlex.join(map(masked, again))}")
    return EXIT_OK


def run_request(run_words: Sequence[str]) -> Request:
    """The request of a run or a plan; to restore rows needs the same sweep and store. Raises SpecError for all else."""
    match run_arguments.parse_command(run_words):
        case Request() as request:
            return request
        case run_arguments.Restoration(sweep, store):
            return Request(sweep, store=store)
        case run_arguments.Listing():
            raise SpecError("--list needs no cluster; run sweeper list")
        case run_arguments.Description(name):
            raise SpecError(f"--describe needs no cluster; run sweeper describe {name}")


def _reference(reference: str, modules: Collection[str]) -> str:
    """How the job names a sweep: the file of one that is sent at the top of its working directory by its name alone."""
    path, colon, attribute = reference.partition(":")
    file = Path(path).expanduser().resolve()
    return f"{file.name}{colon}{attribute}" if str(file) in modules else reference


def _excluded_folders(request: Request, folder: Path) -> list[Path]:
    """Absolute paths of the folders that hold stores and data, which are not sent."""
    requested = [Path(request.data), *([] if "://" in request.store else [Path(Files(request.store).uri)])]
    return [path.resolve() for path in (*requested, *(folder / name for name in DEFAULTS))]


def _check_not_running(jobs: Jobs, metadata: Mapping[str, str]) -> None:
    """Raise ClusterError if a job already runs the sweep into the store: two jobs would train everything twice."""
    other = jobs.running(metadata) if metadata else None
    if other:
        raise ClusterError(
            f"only one job at a time can run a sweep into a store, but {other} runs {metadata['sweep']} into "
            f"{metadata['store']}; --logs {other} follows it, --stop {other} stops it"
        )


def _follow(jobs: Jobs, job: str, rerun: Sequence[str] = ()) -> int:
    """Follow the job to its end and return its exit status. Ctrl-C detaches from it; a second Ctrl-C stops it."""
    stopping = StopSignal()
    try:
        with stopping.on_signals():
            jobs.end(job)  # raises at once if there is no such job
            return _report_end(job, jobs.follow(job, stopping.check))
    except KeyboardInterrupt:
        _print_message(f"\njob {job} goes on; Ctrl-C again within {STOP_WINDOW_SECONDS} s stops it")
        _print_commands(jobs, job, rerun)
    try:
        time.sleep(STOP_WINDOW_SECONDS)
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        _print_message(f"\nstopping job {job}; it has {STOP_SECONDS} s to save its results")
    jobs.stop(job)
    return _report_end(job, jobs.follow(job))


def _stop(jobs: Jobs, job: str) -> int:
    end = jobs.end(job)
    if end is None:
        jobs.stop(job)
        end = jobs.wait(job)
    _report_end(job, end)
    return EXIT_OK


def _report_end(job: str, end: End) -> int:
    _print_message(f"job {job} {end.text}")
    return end.status


def _print_commands(jobs: Jobs, job: str, rerun: Sequence[str]) -> None:
    address = [] if jobs.address == LOCAL_DASHBOARD else ["--address", jobs.address]
    commands = {"follow": ["--logs", job, *address], "stop": ["--stop", job, *address], "continue": rerun}
    for verb, words in commands.items():
        if words:
            _print_message(f"  {verb:<9} sweeper submit {shlex.join(map(masked, words))}")


def _print_message(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def check_request(request: Request) -> list[str]:
    """Check a request. Returns notes, one line each, on what could not be checked from this machine.

    Raises SpecError or StoreError if the request is wrong.
    """
    if not request.names_shared_store:
        raise SpecError(f"{SHARED_STORE}, but got {request.store!r}")
    store, notes = Store(request.store), list[str]()
    addresses = {"--store": store.files.uri} | {f"--track {each.tracker}": each.target or "" for each in request.track}
    for option, address in addresses.items():
        if has_secret(address):
            raise SpecError(
                "an address must have no key or password, because a cluster prints the commands of its jobs, but got "
                f"{option} {masked_url(address)}; give the machines a role, or set the credentials in the cluster's "
                "environment"
            )
    if not _is_visible(store):
        notes.append(
            f"store {store.files.display_uri} does not exist yet or is not visible from here; the job checks its rows"
        )
        with tempfile.TemporaryDirectory() as empty:
            return notes + _check_data(replace(request, warm_start=None), Store(empty))
    return notes + _check_data(request, store)


def _check_data(request: Request, store: Store) -> list[str]:
    """Check a request without its data first, so that nothing is downloaded here, then with it if it is visible."""
    absent = _absent_data(replace(request, data=ABSENT_FOLDER), store)
    if absent is None:
        return []
    default = request.data == os.path.expanduser(NODE_DATA)
    if not os.path.isabs(request.data) or (default and not isinstance(absent, DownloadError)):
        raise SpecError(
            "--data must be an absolute folder, the same on every machine of the cluster, because these trials read "
            "files and a job runs in a temporary copy of the working directory, but got "
            f"{'none' if default else repr(request.data)}"
        )
    if default:
        return [f"each machine fetches the data sets into its folder {NODE_DATA}; --data DIR names another one"]
    if Path(request.data).is_dir() and _absent_data(request, store) is None:
        return []
    return [f"the data in {request.data} are not visible from here; the job checks what depends on them"]


def _absent_data(request: Request, store: Store) -> DataError | None:
    """Which data are missing for a full check; None if everything could be checked. Raises SpecError for a wrong
    request."""
    from sweeper.planning.prepare import prepare  # imported here because torch takes seconds to import

    try:
        prepare(request, store)
    except SpecError as error:
        if isinstance(error.__cause__, DataError):
            return error.__cause__
        raise
    return None


def _is_visible(store: Store) -> bool:
    """Whether the store can be read from this machine. Raises StoreError if it cannot exist anywhere."""
    try:
        folder = store.files.local_folder
        if folder is not None:
            return folder.is_dir()
        store.files.list()
        return True
    except StoreError as error:
        if isinstance(error.__cause__, OSError):  # no network or no permission; the cluster's machines may have both
            return False
        raise
