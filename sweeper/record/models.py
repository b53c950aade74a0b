"""Keeps the store's models down to those of the best trials in a run with `--keep best`.

Workers write the models of all finished members before the rows. Of each cohort the driver deletes the models that are
not the best of a cell, by the cohort's own rows, before it writes these rows. What the best of one cohort displaces of
another stays until the run ends, when `keep_best` deletes it. So no model that is wanted is missing, whenever a process
is killed:

1. Before the rows are written, the cohort is trained again from its checkpoint, and its models are written again.
2. The best trial of a cell is the best of its cohort in this cell, so its model is in the store once it has a row.
3. `keep_best` deletes by the rows in the store. What a killed driver has left, the next run of the request deletes.

Requests of a sweep can share trials. When a run of a request begins and when it ends, it lists the trials whose models
stay: its best so far, and those without a result, any of which may become the best. No other request deletes the models
of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sweeper.planning.cohorts import Cohort
from sweeper.planning.plan import Plan
from sweeper.record.listener import CohortListener, Row
from sweeper.results.best_trials import best_of_cells, best_of_request, columns_ranked, rankings_of, without_result
from sweeper.storage.files import Files
from sweeper.storage.models import (
    delete_displaced,
    delete_models,
    kept_by_others,
    trials_with_models,
    write_kept,
)

if TYPE_CHECKING:
    import pandas as pd


class KeptModels(CohortListener):
    """Deletes the models of a cohort that are not best by the cohort's own rows."""

    def __init__(self, files: Files, plan: Plan) -> None:
        self._files, self._plan, self._rankings = files, plan, rankings_of(plan)

    def ended(self, cohort: Cohort, rows: Sequence[Row]) -> None:
        # Of a trial that failed here another driver may have a result, which only the rows in the store tell.
        ended = [row for row in rows if row["status"] != "failed"]
        best = best_of_cells(self._rankings, ended)
        if worse := [row for row in ended if row["trial_id"] not in best]:
            kept = kept_by_others(self._files, self._plan.request_folder)
            delete_models(self._files, self._plan.name, _not_in(kept, worse))


def keep_best(files: Files, plan: Plan, rows: pd.DataFrame) -> None:
    """List the trials of the request whose models stay, and delete the models of its others that have a row, as far as
    runs with `--keep best` wrote them. Called when a run begins and when it ends. `rows` are those of the request."""
    columns = set(columns_ranked(plan))
    ranked = rows[[name for name in rows if name in columns]].to_dict("records")
    own = best_of_request(plan, ranked) | without_result(plan, ranked)
    write_kept(files, plan.request_folder, own)
    stored = set(trials_with_models(files, plan.name)) - own
    if displaced := [row for row in ranked if row["trial_id"] in stored]:
        kept = kept_by_others(files, plan.request_folder)
        delete_displaced(files, plan.name, _not_in(kept, displaced))


def _not_in(kept: frozenset[str], rows: Sequence[Row]) -> list[str]:
    """The trials of these rows, sorted, without those that are `kept`, or whose study is."""
    return sorted(str(row["trial_id"]) for row in rows if kept.isdisjoint((row["trial_id"], row.get("study_id"))))
