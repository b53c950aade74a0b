"""A search as a plan: its studies, checked in all that can be known before anything starts, rebuilt from the rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from sweeper.errors import SpecError
from sweeper.plan import changes
from sweeper.plan.cohort_source import Record
from sweeper.plan.trials import Trial, content_hash
from sweeper.report.studies import publish as study_views
from sweeper.search.dashboard_journal import DashboardJournal
from sweeper.search.search_plan import SearchPlan
from sweeper.search.study_run import RecordedTrial, StudyRun, result
from sweeper.search.validate import check, corners
from sweeper.search.warm_start import WarmStart, kept_warm_start, warm_from
from sweeper.search.waves import Waves
from sweeper.spec import Sweep
from sweeper.spec.grid import Value
from sweeper.spec.request import Request
from sweeper.spec.search import Search, Searches, Study, bounds
from sweeper.storage.io.files import Files
from sweeper.storage.schema import Columns
from sweeper.storage.store import Store
from trainables.config import trial as config
from trainables.config.trial import TrialConfig
from trainables.data.datasets import DataError
from trainables.learners.streams import stream_key
from trainables.training import preflight

JOURNAL = "studies/{}/journal.log"
"""Where the studies of a sweep's preset, or of a request that changes it, are for optuna-dashboard."""
FACTS: Mapping[str, type] = {"study": str, "study_id": str, "number": int, "wave": int, "schedule": str}
"""Columns of a search's rows beside the hyperparameters."""


def prepare(
    request: Request,
    store: Store,
    name: str,
    preset: str,
    sweep: Sweep,
    own: Search | Searches,
    space: Search | Searches,
) -> tuple[SearchPlan, Columns]:
    """What is to run and the columns of its rows, the request having made `space` of the preset's `own`. SpecError or
    StoreError, one line, where it cannot run."""
    studies = list(space.studies())
    ends = {study.name: corners(study) for study in studies}
    every = [one for found in ends.values() for one in found]
    try:
        prospects = dict(zip(map(id, every), preflight.prospects(every, request.data_read), strict=True))
    except (DataError, ValueError) as error:
        raise SpecError(str(error)) from error
    for study in studies:
        check(study, ends[study.name], [prospects[id(one)] for one in ends[study.name]])
    if len({one.training.workers for one in every}) > 1:
        raise SpecError("all trials of a search have equally many workers, but got several numbers of them")

    def shape(trial: Trial) -> Hashable:
        free = config.fusible(str(trial.config["method"]))
        return tuple((key, value) for key, value in trial.config.items() if key not in free)

    types = {key: kind for one in every for key, kind in config.keys(one.method).items()}
    metrics = tuple(dict.fromkeys(metric for one in prospects.values() for metric in one.metrics))

    def facts(study: Study) -> Mapping[str, Value]:
        return {"preset": preset, "changes": changes.of_study(request, own, study, config.defaults)}

    waves = Waves(
        _courses(studies, ends, request, store, name, facts),
        shape,
        lambda trial: stream_key(config.resolve(trial.config)),
        _population,
    )
    changed = changes.changes_of(request, preset, own, space, config.defaults)
    return SearchPlan(name, preset, sweep, space, waves, changes=changed), Columns({**types, **FACTS}, metrics)


def record(plan: SearchPlan, store: Store) -> None:
    """Keep what each study is and what it begins with."""
    for study_run in plan.waves.study_runs:
        path = _path(plan.name, study_run.id)
        if kept_warm_start(store.files, path, study_run.study) is None:
            study_run.warm.keep(store.files, path, study_run.study)


def journal(plan: SearchPlan, files: Files) -> Callable[[StudyRun], None]:
    """Begins a new journal, and copies to it what a study has been told; nothing where the store is no folder."""
    if files.local is None:
        return lambda study_run: None
    kept_in = DashboardJournal(files.local / JOURNAL.format(plan.views))
    kept_in.begin()

    def copy(study_run: StudyRun) -> None:
        kept_in.add(study_run.study.name, study_run.engine.optuna_study)

    return copy


def show(plan: SearchPlan, files: Files) -> str:
    """The figures and tables of every study, into `studies/NAME/PRESET/STUDY`; returns what to print."""
    texts = []
    copy = journal(plan, files) if files.read(JOURNAL.format(plan.views)) is None else None
    for study_run in plan.waves.study_runs:
        if copy:
            copy(study_run)
        name = study_run.study.name
        title = f"{plan.name} ({plan.label})" + (f", {name}" if len(plan.waves.study_runs) > 1 else "")
        folder, objectives = f"studies/{plan.views}/{name}", study_run.study.search.objectives
        texts.append(
            study_views.write(files, folder, title, study_run.engine.optuna_study, objectives, plan.sweep.contours)
        )
    return "\n\n".join(texts)


def all_diverged(plan: SearchPlan) -> list[str]:
    """Names of the studies all of whose trials diverged: they have found nothing."""
    return [
        study_run.study.name
        for study_run in plan.waves.study_runs
        if len(study_run.statuses) == study_run.study.search.trials and set(study_run.statuses.values()) == {"diverged"}
    ]


def _courses(
    studies: Sequence[Study],
    ends: Mapping[str, Sequence[TrialConfig]],
    request: Request,
    store: Store,
    sweep: str,
    facts: Callable[[Study], Mapping[str, Value]],
) -> list[StudyRun]:
    """The studies, rebuilt from their rows; `facts`: what the rows of a study say beside its name."""
    rows, history = ([], []) if request.fresh else store.records(sweep)
    reports: dict[str, list[Record]] = {}
    for one in history:
        reports.setdefault(one[0], []).append(one)
    study_runs = []
    for study in studies:
        identity = content_hash([study.identity, request.warm_start])
        warm = None if request.fresh else kept_warm_start(store.files, _path(sweep, identity), study)
        if warm is None:
            name = request.warm_start
            warm = warm_from(store, name, study, ends[study.name][0].flat()) if name else WarmStart(None)
        own = [row for row in rows if row.get("study_id") == identity and row["number"] < study.search.trials]
        recorded = {
            row["number"]: RecordedTrial(
                {key: row[key] for key in study.search.space}, result(study, row, reports.get(row["trial_id"], []))
            )
            for row in own
        }
        study_runs.append(StudyRun(study, identity, warm, recorded, _complete, facts(study)))
    return study_runs


def _complete(given: Mapping[str, Value]) -> Mapping[str, Value]:
    return config.resolve(given).flat()


def _population(study: Study) -> Mapping[str, Any]:
    """What a cohort of the study is told of its population."""
    population, (metric, *_) = study.search.population, study.search.objectives
    if population is None:
        return {}
    ranges = {key: bounds(one) for key, one in study.search.space.items()}
    rules = {"every": population.every, "share": population.share, "factor": population.factor}
    return {"population": {"metric": metric.name, "direction": metric.better, "ranges": ranges, **rules}}


def _path(sweep: str, identity: str) -> str:
    return f"studies/{sweep}/{identity}.json"
