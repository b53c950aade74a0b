"""Turn a search request into a `SearchPlan`: check its studies before anything starts, and rebuild them from rows."""

from collections.abc import Callable, Mapping, Sequence

from sweeper.errors import SpecError
from sweeper.plan import changes
from sweeper.plan.cohort_source import Record
from sweeper.plan.trials import content_hash
from sweeper.report.studies import publish as study_views
from sweeper.search.dashboard_journal import DashboardJournal
from sweeper.search.search_plan import SearchPlan
from sweeper.search.study_run import RecordedTrial, StudyRun, result
from sweeper.search.validate import check, corners
from sweeper.search.warm_start import WarmStart, read_warm_start, warm_start_from_rows
from sweeper.spec import Sweep
from sweeper.spec.grid import Value
from sweeper.spec.request import Request
from sweeper.spec.search import Search, Searches, Study
from sweeper.storage.io.files import Files
from sweeper.storage.schema import Columns
from sweeper.storage.store import Store
from trainables.config import trial as config
from trainables.config.trial import TrialConfig
from trainables.data.errors import DataError
from trainables.training import preflight

JOURNAL = "studies/{}/journal.log"
"""Path of the journal for optuna-dashboard, below the store. The placeholder is `Plan.views`."""
FACTS: Mapping[str, type] = {"study": str, "study_id": str, "number": int, "wave": int, "schedule": str}
"""Columns that a search's rows have in addition to the hyperparameters."""


def prepare(
    request: Request,
    store: Store,
    name: str,
    preset: str,
    sweep: Sweep,
    preset_space: Search | Searches,
    space: Search | Searches,
) -> tuple[SearchPlan, Columns]:
    """Return the plan of a search and the columns of its rows.

    `preset_space` is the preset's search and `space` the same search with the request's changes. Raises SpecError or
    StoreError, with a message of one line, if the search cannot run.
    """
    studies = list(space.studies())
    study_corners = {study.name: corners(study) for study in studies}
    configs = [corner for study_configs in study_corners.values() for corner in study_configs]
    try:
        preflight_results = dict(
            zip(map(id, configs), preflight.check_trials(configs, request.data_folder), strict=True)
        )
    except (DataError, ValueError) as error:
        raise SpecError(str(error)) from error
    for study in studies:
        check(study, study_corners[study.name], [preflight_results[id(corner)] for corner in study_corners[study.name]])
    if len({corner.training.workers for corner in configs}) > 1:
        raise SpecError("all trials of a search must have the same number of workers, but got several")

    types = {key: kind for corner in configs for key, kind in config.keys(corner.method).items()}
    metrics = tuple(dict.fromkeys(metric for result in preflight_results.values() for metric in result.metrics))

    def facts(study: Study) -> Mapping[str, Value]:
        return {"preset": preset, "changes": changes.study_changes(request, preset_space, study, config.defaults)}

    study_runs = _study_runs(studies, study_corners, request, store, name, facts)
    changed = changes.request_changes(request, preset, preset_space, space, config.defaults)
    return SearchPlan(name, preset, sweep, space, study_runs, changes=changed), Columns({**types, **FACTS}, metrics)


def record(plan: SearchPlan, store: Store) -> None:
    """Write the definition and the warm start of each study to the store, unless they are already there."""
    for study_run in plan.study_runs:
        path = _path(plan.name, study_run.id)
        if read_warm_start(store.files, path, study_run.study) is None:
            study_run.warm.write(store.files, path, study_run.study)


def journal(plan: SearchPlan, files: Files) -> Callable[[StudyRun], None]:
    """Begin a new journal for optuna-dashboard. Returns a function that copies a study's results to it.

    The function does nothing if the store is not a local folder.
    """
    if files.local_folder is None:
        return lambda study_run: None
    dashboard_journal = DashboardJournal(files.local_folder / JOURNAL.format(plan.views))
    dashboard_journal.begin()

    def copy(study_run: StudyRun) -> None:
        dashboard_journal.add(study_run.study.name, study_run.engine.optuna_study)

    return copy


def show(plan: SearchPlan, files: Files) -> str:
    """Write the figures and tables of every study to `studies/NAME/PRESET/STUDY`. Returns the text to print."""
    texts = []
    copy = journal(plan, files) if files.read(JOURNAL.format(plan.views)) is None else None
    for study_run in plan.study_runs:
        if copy:
            copy(study_run)
        name = study_run.study.name
        title = f"{plan.name} ({plan.label})" + (f", {name}" if len(plan.study_runs) > 1 else "")
        folder, objectives = f"studies/{plan.views}/{name}", study_run.study.search.objectives
        texts.append(
            study_views.write(files, folder, title, study_run.engine.optuna_study, objectives, plan.sweep.contours)
        )
    return "\n\n".join(texts)


def all_diverged(plan: SearchPlan) -> list[str]:
    """Names of the studies whose trials have all diverged."""
    return [
        study_run.study.name
        for study_run in plan.study_runs
        if len(study_run.statuses) == study_run.study.search.trials and set(study_run.statuses.values()) == {"diverged"}
    ]


def _study_runs(
    studies: Sequence[Study],
    study_corners: Mapping[str, Sequence[TrialConfig]],
    request: Request,
    store: Store,
    sweep: str,
    facts: Callable[[Study], Mapping[str, Value]],
) -> list[StudyRun]:
    """Rebuild the studies from their rows. `facts` returns the columns that all rows of a study share."""
    rows, history = ([], []) if request.fresh else store.records(sweep)
    reports: dict[str, list[Record]] = {}
    for report in history:
        reports.setdefault(report[0], []).append(report)
    study_runs = []
    for study in studies:
        identity = content_hash([study.identity, request.warm_start])
        warm = None if request.fresh else read_warm_start(store.files, _path(sweep, identity), study)
        if warm is None:
            source = request.warm_start
            warm = (
                warm_start_from_rows(store, source, study, study_corners[study.name][0].flat())
                if source
                else WarmStart(None)
            )
        study_rows = [row for row in rows if row.get("study_id") == identity and row["number"] < study.search.trials]
        recorded = {
            row["number"]: RecordedTrial(
                {key: row[key] for key in study.search.space}, result(study, row, reports.get(row["trial_id"], []))
            )
            for row in study_rows
        }
        study_runs.append(StudyRun(study, identity, warm, recorded, _complete, facts(study)))
    return study_runs


def _complete(params: Mapping[str, Value]) -> Mapping[str, Value]:
    return config.resolve(params).flat()


def _path(sweep: str, identity: str) -> str:
    return f"studies/{sweep}/{identity}.json"
