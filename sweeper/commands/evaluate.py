"""`sweeper evaluate NAME --dataset DATASET`: what the kept models of a sweep are on other data."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sweeper.commands.command_line import EXIT_OK, Parser, add_options, command_line
from sweeper.errors import DamagedError, SpecError, StoreError
from sweeper.execution.signals import LAST_LINE
from sweeper.models import import_own_code, not_imported, sweep_and_code
from sweeper.option_values import device, named
from sweeper.printing import print, printable
from sweeper.report.formatting import text_table
from sweeper.report.kinds import read_figures
from sweeper.storage.evaluations import Row, read_evaluations, write_evaluations
from sweeper.storage.files import Files, say_few
from sweeper.storage.layout import evaluation_path, model_path
from sweeper.storage.models import model_metadata, trials_with_models
from sweeper.storage.rows import columns_of
from sweeper.storage.store import StoreReader, check_no_folder_of_a_store, check_writable
from trainables.own_code import KINDS, NotImportedError
from trainables.reports import ModelError
from trainables.validation import is_own, unknown

ABOUT = (
    "Evaluate the kept models of a sweep on other labelled data by the metrics of their trials, without training. The "
    "results are rows of their own, in STORE/evaluations/sweep=NAME."
)
EXITS = "Exit status: 0, 2 for a wrong request, said in one line, or 130 interrupted; the same command continues."


@dataclass(frozen=True)
class EvaluationData:
    """The data that models are evaluated on."""

    dataset: str
    folder: Path
    known: Mapping[str, Any]
    """Keys of trials that say which data these are."""
    shape: tuple[int, ...] | None
    """(C, H, W) of an image; None where images are resized to those of the model."""
    note: str = ""
    """One line for the user on data of their own."""

    @property
    def digest(self) -> str:
        """Hash of the content of data of the user's own; else empty."""
        return str(self.known.get("image_digest", ""))


@dataclass(frozen=True)
class Evaluated:
    """A model that is to be evaluated."""

    trial: str
    weights: str
    """Hash of its weights."""
    config: Any
    """That of its trial, with the other data."""


@command_line(LAST_LINE)
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    parser = Parser("evaluate", ABOUT, EXITS)
    add = parser.add_argument
    add("name", metavar="NAME", help="the sweep: its name in the store, or its file or module")
    dataset_help = "the data set: its name, my_data:MyDataset, arrays, folder or huggingface"
    dataset = partial(named, "--dataset", noun="a data set")
    add("--dataset", type=dataset, required=True, metavar="NAME", help=dataset_help)
    add_options(parser, "data", "store")
    add("--trial", action="append", default=[], metavar="ID", help="only the trial with this id (again for more)")
    add("--metric", metavar="METRIC", help="the metric that is printed (default: the preset's); all are written")
    add("--fresh", action="store_true", help="evaluate again what has been evaluated")
    method_help = "code of your own that may be imported (again for more); that of a sweep's file may be, too"
    add("--method", action="append", default=[], metavar="MODULE:CLASS", help=method_help)
    on = partial(device, "--device")
    add("--device", type=on, default="cpu", metavar="cpu|cuda", help="where models are evaluated")
    options = parser.parse_args(arguments)
    name, own_code = sweep_and_code(options.name)
    own_data = [options.dataset] if is_own(options.dataset) else []
    files, trained = Files(options.store), _trained(Files(options.store), name, options.trial)
    allowed = {str(each["config"].get(key)) for each in trained.values() for key in ("method", *KINDS)}
    import_own_code([*options.method, *own_data, *sorted(own_code & allowed)])
    metrics = _metrics(files, name)
    shown = _shown(files, name, metrics, options.metric)
    found = _data(options.dataset, Path(options.data))
    wanted = [_evaluated(trial, each, found) for trial, each in trained.items()]
    if found.note:
        print(printable(found.note), file=sys.stderr)
    rows, count = _rows(files, name, found, wanted, options.fresh, options.device)
    if earlier := _of_other_epochs(files, name, trained):
        print(f"note: {earlier} of these models are of a best epoch; the sweep's rows are of the last", file=sys.stderr)
    print(table(metrics, rows, shown, found))
    path = files.display_uri_of(evaluation_path(name, found.dataset, found.digest))
    print(f"{path}: {len(rows)} trials, {count} of them evaluated now")
    return EXIT_OK


def _trained(files: Files, name: str, wanted: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Trial -> metadata of its model, of those that are kept, or of the wanted ones among them."""
    kept = trials_with_models(files, name)
    keep = "its run with --keep all --fresh in addition trains its trials again and keeps all"
    if not kept:
        raise SpecError(f"no model of sweep '{name}' is kept in {files.display_uri}; {keep}")
    for trial in wanted:
        if trial not in kept:
            raise SpecError(f"{unknown('trial with a model', trial, kept)}; {keep}")
    found, damaged = dict[str, dict[str, Any]](), list[str]()
    for trial in wanted or kept:
        try:
            found[trial] = model_metadata(files, model_path(name, trial))
        except (ModelError, DamagedError) as error:
            damaged.append(_unusable(trial, error))
    if not found or (wanted and damaged):
        raise StoreError(damaged[0])
    say_few(damaged)
    return found


def _unusable(trial: str, error: Exception) -> str:
    return f"the model of trial {trial} cannot be used: {error}"


def _of_other_epochs(files: Files, name: str, trained: Mapping[str, Mapping[str, Any]]) -> int:
    """How many of these models are of another epoch than the rows of their trials."""
    of_epochs = {trial: each["epoch"] for trial, each in trained.items() if "epoch" in each}
    rows = StoreReader(files).rows(name) if of_epochs else None
    if rows is None:
        return 0
    reached = dict(zip(rows["trial_id"].to_pylist(), rows["epochs_run"].to_pylist(), strict=True))
    return sum(reached.get(trial, epoch) != epoch for trial, epoch in of_epochs.items())


def _metrics(files: Files, name: str) -> dict[str, dict[str, Any]]:
    """Metric -> trial -> its value in the sweep's rows."""
    rows = StoreReader(files).rows(name)
    if rows is None:
        return {}
    trials = rows["trial_id"].to_pylist()
    names = columns_of(rows.schema).metrics
    return {name: dict(zip(trials, rows[name].to_pylist(), strict=True)) for name in names}


def _shown(files: Files, name: str, metrics: Mapping[str, Any], wanted: str | None) -> str:
    """The metric that is printed: the wanted one, or that which decides in the sweep's presets."""
    if wanted is not None and wanted not in metrics:
        raise SpecError(unknown("metric", wanted, list(metrics)))
    headlines = [figures.headline.name for figures in read_figures(files, name)[0].values()]
    return wanted or next((each for each in headlines if each in metrics), next(iter(metrics), ""))


def _data(dataset: str, folder: Path) -> EvaluationData:
    """The data set with this name."""
    from sweeper.planning.prepare import is_of_user, listing_of
    from trainables.data.datasets.catalog import DATASETS
    from trainables.data.errors import DataError

    if dataset in DATASETS:
        return EvaluationData(dataset, folder, {"dataset": dataset}, DATASETS[dataset].declaration.shape)
    if not is_of_user(dataset):
        raise SpecError(unknown("dataset", dataset, [*DATASETS, "arrays", "folder", "huggingface"]))
    try:
        listing, known = listing_of(dataset, folder.resolve(), whole=True)
    except (DataError, ValueError) as error:
        raise SpecError(str(error)) from error
    shape = listing.shape if "image_size" in known else None
    return EvaluationData(
        dataset,
        folder.resolve(),
        {"dataset": dataset, **known},
        shape,
        "; ".join(filter(None, (listing.about, *listing.remarks))),
    )


def _evaluated(trial: str, metadata: Mapping[str, Any], data: EvaluationData) -> Evaluated:
    """A model to be evaluated. Raises SpecError if it cannot be, as far as that is known without the data."""
    from trainables.training.evaluation import evaluated_config

    shape = metadata["shapes"].get("views")
    if shape is None:
        raise SpecError(f"trial {trial} cannot be evaluated: {metadata['config'].get('method')} is no method of images")
    try:
        config = evaluated_config(metadata["config"], shape, data.known, data.shape)
    except NotImportedError as error:
        raise SpecError(not_imported(f"trial {trial}", error, "evaluate")) from error
    except (ValueError, KeyError) as error:
        raise SpecError(_cannot(trial, data, error)) from error
    return Evaluated(trial, metadata["digest"], config)


def _cannot(trial: str, data: EvaluationData, error: Exception) -> str:
    return f"trial {trial} cannot be evaluated on {data.dataset}: {error}"


def _rows(
    files: Files, name: str, data: EvaluationData, wanted: Sequence[Evaluated], fresh: bool, place: str
) -> tuple[list[Row], int]:
    """All rows on these data, and how many of them are new. What was evaluated is written, also if it is cut off."""
    check_no_folder_of_a_store(files)
    rows = read_evaluations(files, name, data.dataset, data.digest)
    due = [each for each in wanted if fresh or rows.get(each.trial, {}).get("weights") != each.weights]
    if due:
        check_writable(files)
        files.pin_folder()
        _check_device(place)
    count, damaged = 0, list[str]()
    try:
        for each in due:
            try:
                found = _evaluate(files, name, data, each, place)
            except (ModelError, DamagedError) as error:
                damaged.append(_unusable(each.trial, error))
                continue
            identity = {"dataset": data.dataset, "image_digest": data.digest or None, "weights": each.weights}
            rows[each.trial] = {"trial_id": each.trial, **identity, **found}
            count += 1
    finally:
        ordered = [rows[trial] for trial in sorted(rows)]
        if count:
            write_evaluations(files, name, data.dataset, data.digest, ordered)
    if damaged and not rows:
        raise StoreError(damaged[0])
    say_few(damaged)
    return ordered, count


def _check_device(place: str) -> None:
    from trainables.training.train import check_device

    try:
        check_device(place)
    except ValueError as error:
        raise SpecError(str(error)) from error


def _evaluate(files: Files, name: str, data: EvaluationData, each: Evaluated, place: str) -> dict[str, float | None]:
    """The metrics of a model. Raises ModelError or DamagedError if its file is damaged."""
    from trainables.data.errors import DataError
    from trainables.training.evaluation import evaluate
    from trainables.training.model_file import unpack_model

    content = files.read(model_path(name, each.trial))
    if content is None:
        raise StoreError(f"the model of trial {each.trial} is gone; the same command goes on without it")
    try:
        return evaluate(unpack_model(content), each.config, data.folder, place)
    except (DataError, ValueError) as error:
        raise SpecError(_cannot(each.trial, data, error)) from error


def table(metrics: Mapping[str, Mapping[str, Any]], rows: Sequence[Row], shown: str, data: EvaluationData) -> str:
    """Return a table with a line for each trial: its value in the sweep's row, and on these data."""

    def text(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else ""

    trials = [str(row["trial_id"]) for row in rows]
    columns = {
        "trial": trials,
        shown: [text(metrics.get(shown, {}).get(trial)) for trial in trials],
        f"on {data.dataset}": [text(row.get(shown)) for row in rows],
    }
    return text_table(columns, right=[*columns][1:])
