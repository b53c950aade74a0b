"""Turn a search request into a `SearchPlan`: check its studies before anything starts, and rebuild them from rows."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sweeper.errors import SpecError
from sweeper.plan import changes
from sweeper.plan.changes import Changes
from sweeper.plan.cohorts import content_hash
from sweeper.plan.sources import Record
from sweeper.request import Request
from sweeper.search.search_plan import SearchPlan
from sweeper.search.study_run import (
    RecordedTrial,
    StudyRun,
    WarmStart,
    definition_path,
    read_warm_start,
    result,
    warm_start_from_rows,
)
from sweeper.search.validate import check, corners
from sweeper.spec import Sweep
from sweeper.spec.space import Search, Searches, Study, Value
from sweeper.storage.requests import RequestRows
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from trainables import config
from trainables.data.errors import DataError
from trainables.training import checks

FACTS: Mapping[str, type] = {"study": str, "study_id": str, "number": int, "wave": int, "schedule": str}
"""Columns that a search's rows have in addition to the hyperparameters."""


def prepare(
    request: Request,
    store: Store,
    name: str,
    sweep: Sweep,
    preset_space: Search | Searches,
    space: Search | Searches,
    whole: Search | Searches,
    changed: Changes,
) -> tuple[SearchPlan, Columns]:
    """Return the plan of a search and the columns of its rows.

    `preset_space` is the preset's search, `space` the same search as the request changes it, and `whole` the latter
    without narrowing. Raises SpecError or StoreError, with a message of one line, if the search cannot run.
    """
    preset = changed.preset
    studies = list(space.studies())
    study_corners = [corners(study) for study in studies]
    configs = list(itertools.chain(*study_corners))
    try:
        preflight_results = checks.check_trials(configs, request.data_folder)
    except (DataError, ValueError) as error:
        raise SpecError(str(error)) from error
    unchecked, steps = iter(preflight_results), []
    for study, own_corners in zip(studies, study_corners, strict=True):
        own_results = list(itertools.islice(unchecked, len(own_corners)))
        check(study, own_corners, own_results)
        pairs = zip(own_corners, own_results, strict=True)
        steps.append(min(corner.training.epochs * result.steps for corner, result in pairs))
    if len({corner.training.processes for corner in configs}) > 1:
        raise SpecError("all trials of a search must have the same number of workers, but got several")

    types = config.column_types(configs)
    metrics = tuple(dict.fromkeys(metric for result in preflight_results for metric in result.metrics))

    def facts(study: Study) -> Mapping[str, Value]:
        return {"preset": preset, "changes": changes.study_changes(request, preset_space, study, config.defaults)}

    defaults = [own_corners[0].flat() for own_corners in study_corners]
    recorded = ([], []) if request.fresh else store.records(name)
    study_runs = _study_runs(studies, defaults, request, store, name, facts, *recorded)
    whole_ids = [_identity(study, request) for study in whole.studies()]
    request_rows = RequestRows(changed.name, preset, "study_id", whole_ids)
    of_trials = {str(facts(study)["changes"]) for study in studies}
    searched = {*FACTS, *(key for study in studies for key in study.search.space)}
    expected = changes.expected_values((corner.flat() for corner in configs), searched)
    earlier = None
    if any(row.get("study_id") not in whole_ids for row in recorded[0]):
        earlier = changes.note_on_earlier_rows(store, name, request_rows, changed, of_trials, expected, searched)
    notes = (*filter(None, [earlier]), *checks.stacking_notes(configs, preflight_results))
    plan = SearchPlan(name, preset, sweep, space, study_runs, steps, changes=changed, whole=request_rows, notes=notes)
    return plan, Columns({**types, **FACTS}, metrics)


def _study_runs(
    studies: Sequence[Study],
    configs: Sequence[Mapping[str, Value]],
    request: Request,
    store: Store,
    sweep: str,
    facts: Callable[[Study], Mapping[str, Value]],
    rows: Sequence[Mapping[str, Any]],
    history: Sequence[Record],
) -> list[StudyRun]:
    """Rebuild the studies from their rows. `configs` has a config of each; `facts` returns columns of its rows."""
    reports: dict[str, list[Record]] = {}
    for report in history:
        reports.setdefault(report[0], []).append(report)
    study_runs = []
    for study, study_config in zip(studies, configs, strict=True):
        defaults = config.defaults(str(study.fixed["method"]))
        identity = _identity(study, request)
        warm = None if request.fresh else read_warm_start(store.files, definition_path(sweep, identity), study)
        if warm is None and request.warm_start:
            warm = warm_start_from_rows(store, request.warm_start, study, study_config, defaults)
        study_rows = [row for row in rows if row.get("study_id") == identity and row["number"] < study.search.trials]
        recorded = {
            row["number"]: RecordedTrial(
                study.searched_values(row, defaults), result(study, row, reports.get(row["trial_id"], []))
            )
            for row in study_rows
        }
        study_runs.append(StudyRun(study, identity, warm or WarmStart(None), recorded, _complete, facts(study)))
    return study_runs


def _identity(study: Study, request: Request) -> str:
    return content_hash([study.identity, request.warm_start])


def _complete(params: Mapping[str, Value]) -> Mapping[str, Value]:
    return config.resolve(params).flat()
