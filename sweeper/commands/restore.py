"""`sweeper restore NAME TIME`: bring back rows that a run with `--fresh` has archived; and how it does that."""

import shlex
from collections.abc import Callable, Sequence

from sweeper.commands.arguments import SWEEP, Restoration
from sweeper.commands.command_line import EXIT_OK, Parser, add_options, command_line
from sweeper.commands.other_drivers import alone
from sweeper.definition import SpecError, registry
from sweeper.names import is_name
from sweeper.packing.cuts import record_paths
from sweeper.planning.plan import Plan
from sweeper.printing import print
from sweeper.storage import archive as replaced
from sweeper.storage.checkpoints import fresh_checkpoints
from sweeper.storage.files import Files
from sweeper.storage.layout import FIGURES, cut_path, figure_path, figures_folder, study_path, trials_folder
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store, check_writable

CheckpointPath = Callable[[str], str]
"""A cohort's id -> path of its checkpoint in the store."""


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    parser = Parser("restore", "Bring back what a run with --fresh archived. Nothing is trained.")
    parser.add_argument("sweep", metavar="NAME", help=f"the sweep: {SWEEP}")
    parser.add_argument("time", metavar="TIME", help="when it was archived, as that run has printed")
    add_options(parser, "store")
    restore(Restoration(**vars(parser.parse_args(arguments))))
    return EXIT_OK


def preview_archive(plan: Plan, store: Store, columns: Columns) -> replaced.ArchiveSummary:
    """What a fresh run of the plan would archive."""
    return replaced.preview_archive(store.files, plan.name, _selection(plan, store), columns)


def _selection(plan: Plan, store: Store) -> replaced.TrialSelection:
    studies = [study_run.id for study_run in plan.study_runs]
    return replaced.TrialSelection(
        plan.ids,
        studies,
        [
            *(record_paths(store.files, plan) if plan.groups else ()),
            *(study_path(plan.name, study) for study in studies),
            *(cut_path(plan.name, study) for study in studies),
            *(figure_path("studies", plan.request_folder, study_run.study.name) for study_run in plan.study_runs),
            *(figures_folder(kind, plan.request_folder) for kind in FIGURES if kind != "studies"),
        ],
    )


def archive(plan: Plan, store: Store, columns: Columns, reference: str = "") -> CheckpointPath:
    """Archive what a fresh run replaces, and print what was moved. Returns the path of each cohort's checkpoint.

    `reference` is the sweep as the user named it, for a command; by default its name.
    """
    moved = replaced.archive(store.files, plan.name, _selection(plan, store), columns)
    if moved:
        time, address = moved.folder.rsplit("/", 1)[1], shlex.quote(store.files.display_uri)
        print(
            f"archived: {moved.text}, in {store.files.display_uri_of(moved.folder)}; to bring them back: "
            f"sweeper restore {shlex.quote(reference or plan.name)} {time} --store {address}",
            flush=True,
        )
    return fresh_checkpoints(store.files, plan.name, moved.folder if moved else None)


def restore(what: Restoration) -> None:
    """Bring back what a fresh run archived."""
    store = Store(what.store)
    name = _name_in_store(what.sweep, store.files, what.time)
    replaced.archived_times(store.files, name, what.time)  # before anything is written, such as a lease
    check_writable(store.files)
    with alone(store.files, name, f"sweeper restore {name}", "restore needs the sweep for itself"):
        back = replaced.restore(store.files, name, what.time)
    print(f"brought back: {back.text}, into {store.files.display_uri_of(trials_folder(name))}")


def _name_in_store(reference: str, files: Files, time: str) -> str:
    """The store's name of the sweep that the user named. A sweep that was given as a value in Python has no file that
    could be found, so its name alone counts if something of it was archived."""
    try:
        return registry.find(reference).name or reference
    except SpecError:
        if is_name(reference) and replaced.holds(files, reference, time):
            return reference
        raise
