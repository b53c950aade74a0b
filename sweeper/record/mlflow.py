"""MLflow: a run for each trial in the experiment of the sweep, on a tracking server."""

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag

from sweeper.record.listener import Row
from sweeper.record.tracker import Reports, TrackedTrial, Tracker, end_of, plain
from sweeper.servers import bound_answers

TRIAL, GROUP, ENDED = "sweeper.trial", "sweeper.group", "sweeper.ended"
"""Tags of a run: the id of its trial, its request, and when its trial ended."""
STATUSES = {"finished": "FINISHED", "pruned": "KILLED", "diverged": "FAILED", "failed": "FAILED"}
"""Status of a row -> of a run. The tag `status` has the row's own."""
LARGEST_BATCH, MOST_PARAMS, LONGEST_VALUE = 1000, 100, 500
"""Most metrics and most parameters that MLflow takes in one call, and most characters of a parameter or tag."""
PAGE, MOST_RUNS = 200, 1_000_000
"""Runs that are asked for at once, whose answer must not be longer than `LONGEST_ANSWER`; and most of an experiment."""
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Environment of MLflow where the user's has no other. MLflow itself tries a server that is gone for four minutes."""
Item = TypeVar("Item")


class MLflow(Tracker):
    """Writes runs through the API of a tracking server. A run is found by its tag `sweeper.trial`."""

    def __init__(self, uri: str, experiment: str) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        bound_answers()
        self._client = MlflowClient(uri)
        found = self._client.get_experiment_by_name(experiment)
        self._experiment = found.experiment_id if found else self._client.create_experiment(experiment)
        self._runs = {run.data.tags[TRIAL]: run for run in self._all_runs() if TRIAL in run.data.tags}
        self._ids = {trial: run.info.run_id for trial, run in self._runs.items()}
        self._running: set[str] = set()
        """Ids of the runs that were started and have not ended."""

    def _all_runs(self) -> Sequence[Run]:
        pages: list[Run] = []
        token: str | None = None
        while True:
            page = self._client.search_runs([self._experiment], max_results=PAGE, page_token=token)
            pages, token = [*pages, *page], page.token
            if not token or not page:
                return pages
            if len(pages) > MOST_RUNS:
                raise ValueError(f"an experiment must have at most {MOST_RUNS} runs, but the server lists more")

    def ended(self) -> Mapping[str, str]:
        return {trial: run.data.tags[ENDED] for trial, run in self._runs.items() if ENDED in run.data.tags}

    def start(self, trial: TrackedTrial, anew: bool) -> int:
        run_id, last, known = self._ids.get(trial.id), -1, dict[str, str]()
        if run_id and anew:
            self._client.delete_run(run_id)
            run_id = None
        if run_id:
            data = self._client.get_run(run_id).data
            known = data.params
            histories = (self._client.get_metric_history(run_id, metric) for metric in data.metrics)
            last = max((point.step for points in histories for point in points), default=-1)
            self._client.update_run(run_id, status="RUNNING")
        else:
            tags = {TRIAL: trial.id, GROUP: trial.group}
            run_id = self._client.create_run(self._experiment, tags=tags, run_name=trial.name).info.run_id
        self._ids[trial.id] = run_id
        self._running.add(run_id)
        self._add_params(run_id, trial, known)
        return last

    def report(self, trial: TrackedTrial, reports: Reports) -> None:
        now = int(time.time() * 1000)
        points = (
            Metric(name, value, now, epoch) for epoch, metrics in reports.items() for name, value in metrics.items()
        )
        for batch in _batches(points, LARGEST_BATCH):
            self._client.log_batch(self._ids[trial.id], metrics=batch)

    def end(self, trial: TrackedTrial, row: Row) -> None:
        run_id, (numbers, texts) = self._ids[trial.id], trial.outcome(row)
        known = self._client.get_run(run_id).data
        self._add_params(run_id, trial, known.params)
        epoch, now = int(numbers.get("epochs_run", 0)), int(time.time() * 1000)
        metrics = [Metric(name, value, now, epoch) for name, value in numbers.items() if name not in known.metrics]
        tags = [RunTag(key, text[:LONGEST_VALUE]) for key, text in {**texts, ENDED: end_of(row)}.items()]
        self._client.log_batch(run_id, metrics=metrics, tags=tags)
        self._client.set_terminated(run_id, STATUSES[texts["status"]])
        self._running.discard(run_id)

    def _add_params(self, run_id: str, trial: TrackedTrial, known: Mapping[str, str]) -> None:
        """Add the hyperparameters that a run has not. MLflow refuses another text of a value, such as 1 for 1.0."""
        new = (
            Param(key, str(plain(value))[:LONGEST_VALUE])
            for key, value in trial.hyperparameters.items()
            if key not in known
        )
        for batch in _batches(new, MOST_PARAMS):
            self._client.log_batch(run_id, params=batch)

    def close(self) -> None:
        for run_id in self._running:  # their trials were interrupted
            self._client.set_terminated(run_id, "KILLED")


def _batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch
