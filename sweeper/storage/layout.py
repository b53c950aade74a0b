"""Every name and path in a store.

A `request_folder` is `SWEEP/REQUEST`, where `REQUEST` is the `file_name` of the request's name.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from sweeper.errors import DAMAGED
from sweeper.names import LAW, is_name

SUFFIX = ".parquet"
MODEL_SUFFIX = ".safetensors"
LOG_SUFFIX = ".txt"
LONGEST_NAME = 120
"""Most characters of a request's name in a path; a longer one is cut and ends with a hash of the whole."""
ARCHIVES = "_replaced"
"""Folder of the store below which results that `--fresh` replaces get a folder of their own, named by the time."""
LEASES = ".drivers"
"""Folder of the store in which the drivers that run a sweep now have their leases."""
TRIALS, HISTORIES, REPORTS, CLAIMS = "trials", "history", "reports", "claims"
"""Folders of the rows, the history, the pages and the verdicts of all sweeps."""
LOGS = "logs"
"""Folder of what the trials of all sweeps printed, and of the logs of runs."""
EVALUATIONS = "evaluations"
"""Folder of what kept models are on other data, of all sweeps."""
FIGURES = ("heatmaps", "rankings", "tables", "trajectories", "studies", "sheets")
"""Folders of the kinds of figures, in which each request has a folder."""
REMOVALS = ".removals"
"""Folder of the store with what is being removed."""
FOLDERS = frozenset(
    (
        *(TRIALS, HISTORIES, REPORTS, CLAIMS, *FIGURES, "models", "checkpoints", "requests", "tensorboard"),
        *(EVALUATIONS, LOGS, "profiles", "cuts", "looks"),
    )
) | {ARCHIVES, LEASES, DAMAGED, REMOVALS}
"""The folders of a store."""
_SWEEP = "sweep="
"""Prefix of a sweep's folder of rows, by which readers of Parquet know the column `sweep`."""
INDEX = f"{REPORTS}/index.html"
"""The path of the list of all sweeps, so no sweep is named `index`."""
CLAIMS_PAGE = f"{REPORTS}/claims.html"
"""The path of the page of all claims, so no sweep is named `claims`."""


def check_name(name: str) -> str:
    """Return `name` if it is valid as the name of a sweep or a cohort in the store. Raises ValueError otherwise."""
    if not is_name(name):
        raise ValueError(f"a name in the store {LAW}, but got {name!r}")
    return name


def trials_folder(sweep: str) -> str:
    """The folder of the sweep's rows."""
    return f"{TRIALS}/{_SWEEP}{check_name(sweep)}"


def history_folder(sweep: str) -> str:
    """The folder of the sweep's history."""
    return f"{HISTORIES}/{_SWEEP}{check_name(sweep)}"


def evaluations_folder(sweep: str) -> str:
    """The folder of the evaluations of the sweep's kept models on other data."""
    return f"{EVALUATIONS}/{_SWEEP}{check_name(sweep)}"


def evaluation_path(sweep: str, dataset: str, digest: str) -> str:
    """The path of the evaluations on a data set, of which `digest` is the hash if it is the user's own."""
    name = file_name(f"{dataset}-{digest}" if digest else dataset)
    return f"{evaluations_folder(sweep)}/{name.lstrip('._')}{SUFFIX}"  # no reader lists hidden files


def checkpoints_folder(sweep: str) -> str:
    """The folder of the checkpoints of the sweep's cohorts."""
    return f"checkpoints/{_SWEEP}{check_name(sweep)}"


def checkpoint_path(sweep: str, cohort: str) -> str:
    """The path of a cohort's checkpoint, which exists until the cohort's rows are written."""
    return f"{checkpoints_folder(sweep)}/{check_name(cohort)}.pt"


def file_name(request: str) -> str:
    """The name of a request, such as `digits, epochs=5`, as a name that is legal in every file system and store."""
    name = re.sub(r"[^\w ,=.+-]", "_", request, flags=re.ASCII)
    if name == request and len(name) <= LONGEST_NAME:
        return name
    return f"{name[:LONGEST_NAME]}-{hashlib.sha256(request.encode()).hexdigest()[:8]}"


def requests_folder(sweep: str) -> str:
    """The folder of the lists of the trials of each request."""
    return f"requests/{check_name(sweep)}"


def request_path(sweep: str, request: str) -> str:
    """The path of the list of the trials of a request."""
    return f"{requests_folder(sweep)}/{file_name(request)}{SUFFIX}"


def claims_folder(sweep: str) -> str:
    """The folder of the verdicts on the claims of a sweep."""
    return f"{CLAIMS}/{_SWEEP}{check_name(sweep)}"


def claims_path(sweep: str, request: str) -> str:
    """The path of the verdicts on the claims of a sweep by the rows of a request."""
    return f"{claims_folder(sweep)}/{file_name(request)}{SUFFIX}"


def interim_path(sweep: str, request: str) -> str:
    """The path of the interim analyses of a sweep's claims, made while seeds were added to a request."""
    return f"looks/{check_name(sweep)}/{file_name(request)}.json"


def sample_grids_folder(sweep: str) -> str:
    """The folder of the sweep's sample grids: a folder for each trial, and one for each request."""
    return f"sheets/{check_name(sweep)}"


def sample_grid_path(sweep: str, trial: str, name: str) -> str:
    """The path of one of a trial's sample grids, or of the data of one of its figures. `name` includes the suffix."""
    return f"{sample_grids_folder(sweep)}/{check_name(trial)}/{check_name(name)}"


def is_sample_grid(name: str) -> bool:
    """Whether a file of a trial's folder of sample grids has the name of one."""
    return is_name(name) and name.endswith((".png", ".npz"))


def logs_folder(sweep: str) -> str:
    """The folder of what the sweep's trials printed."""
    return f"{LOGS}/{_SWEEP}{check_name(sweep)}"


def log_path(sweep: str, trial: str) -> str:
    """The path of what a trial printed."""
    return f"{logs_folder(sweep)}/{check_name(trial)}{LOG_SUFFIX}"


def run_logs_folder(sweep: str) -> str:
    """The folder of the logs of the sweep's runs."""
    return f"{LOGS}/runs/{check_name(sweep)}"


def run_log_path(sweep: str, time: str) -> str:
    """The path of the log of the run that began at a `timestamp`."""
    return f"{run_logs_folder(sweep)}/{time}.log"


def report_path(sweep: str) -> str:
    """The path of the page of a sweep."""
    return f"{REPORTS}/{check_name(sweep)}.html"


def summary_path(sweep: str) -> str:
    """The path of what the list of all sweeps says of the sweep."""
    return f"{REPORTS}/{check_name(sweep)}.summary.json"


def trial_names_path(sweep: str) -> str:
    """The path of the hyperparameters by which a page names the trials that are training."""
    return f"{REPORTS}/{check_name(sweep)}.trials.json"


def page_figures_folder(sweep: str) -> str:
    """The folder of what a page shows of each preset of the sweep."""
    return f"{REPORTS}/{check_name(sweep)}.views"


def class_names_folder(sweep: str) -> str:
    """The folder of the names of the classes of users' own images."""
    return f"{REPORTS}/{check_name(sweep)}.classes"


def class_names_path(sweep: str, digest: str) -> str:
    """The path of the names of the classes of a user's own images, by the digest that rows have of them."""
    return f"{class_names_folder(sweep)}/{check_name(digest)}.json"


def models_folder(sweep: str) -> str:
    """The folder of the sweep's trained models."""
    return f"models/{_SWEEP}{check_name(sweep)}"


def model_path(sweep: str, trial: str) -> str:
    """The path of a trial's model."""
    return f"{models_folder(sweep)}/{check_name(trial)}{MODEL_SUFFIX}"


def unwritten_models_folder(sweep: str) -> str:
    """The folder of the lists of models that could not be written, one a cohort."""
    return f"models/unwritten/{check_name(sweep)}"


def leases_folder(sweep: str) -> str:
    """The folder of the leases of the drivers that run the sweep now."""
    return f"{LEASES}/{check_name(sweep)}"


def best_models_path(request_folder: str) -> str:
    """The path of the list of the best trials of a request, whose models it keeps."""
    return f"models/best/{request_folder}.json"


def cuts_folder(sweep: str) -> str:
    """The folder of how the cohorts of the sweep's grids are cut, and of the steps of its studies."""
    return f"cuts/{_SWEEP}{check_name(sweep)}"


def cut_path(sweep: str, name: str) -> str:
    """The path of the cut of a grid, named by its plan's id, or of the steps of a study, named by the study's id."""
    return f"{cuts_folder(sweep)}/{check_name(name)}.json"


def halved_folder(sweep: str) -> str:
    """The folder with an empty file for each cohort that was halved, named by the cohort's id."""
    return f"{cuts_folder(sweep)}/halved"


def figures_folder(kind: str, request_folder: str) -> str:
    """The folder of a request's figures of one of the kinds `FIGURES`."""
    return f"{kind}/{request_folder}"


def figure_path(kind: str, request_folder: str, name: str) -> str:
    """The path of one of a request's figures, or of a folder of them. `name` includes the suffix."""
    return f"{figures_folder(kind, request_folder)}/{name}"


def end_text_path(request_folder: str) -> str:
    """The path of a request's tables, heatmaps and studies as text, as its last run has written them."""
    return figure_path("tables", request_folder, "end.txt")


def study_path(sweep: str, study: str) -> str:
    """The path of the definition of a study, by the study's id."""
    return f"studies/{check_name(sweep)}/{check_name(study)}.json"


def journal_path(request_folder: str) -> str:
    """The path of the journal of a request's studies, which `optuna-dashboard` opens."""
    return f"studies/{request_folder}/journal.log"


def devices_path(cluster: str) -> str:
    """The path of what is known of a cluster's devices, by the hash of its address."""
    return f"profiles/devices/{check_name(cluster)}.json"


def profile_path(shape: str) -> str:
    """The path of a measurement, by the hash of what was measured."""
    return f"profiles/{check_name(shape)}.json"


def tensorboard_folder(sweep: str) -> str:
    """The folder of the sweep's files for TensorBoard."""
    return f"tensorboard/{check_name(sweep)}"


def whole_folders(sweep: str) -> tuple[str, ...]:
    """The folders of the sweep whose files and subfolders each belong to one request or trial, unlike rows and history.

    The last one lies in the folder of cuts.
    """
    figures = (figures_folder(kind, sweep) for kind in FIGURES)
    of_trials = (checkpoints_folder(sweep), models_folder(sweep), logs_folder(sweep))
    return *of_trials, cuts_folder(sweep), *figures, halved_folder(sweep)


def sweep_folders(sweep: str) -> Mapping[str, tuple[str, ...]]:
    """Kind -> the folders and files that belong to the sweep alone, in the order in which they are deleted: rows first,
    because a row means that the rest is there, and what names its requests last. The archive is none of it."""
    figures = (figures_folder(kind, sweep) for kind in FIGURES)
    pages = (report_path(sweep), summary_path(sweep), trial_names_path(sweep), class_names_folder(sweep))
    return {
        "rows": (trials_folder(sweep),),
        "history": (history_folder(sweep),),
        "evaluations": (evaluations_folder(sweep),),
        "models": (models_folder(sweep), unwritten_models_folder(sweep), f"models/best/{sweep}"),
        "logs": (logs_folder(sweep), run_logs_folder(sweep)),
        "checkpoints": (checkpoints_folder(sweep), cuts_folder(sweep)),
        "figures": (*figures, tensorboard_folder(sweep)),
        "pages": (claims_folder(sweep), f"looks/{sweep}", *pages, page_figures_folder(sweep), requests_folder(sweep)),
    }


def request_files(sweep: str, request: str) -> tuple[str, ...]:
    """The folders and files that belong to a request of the sweep alone, its list last."""
    figures = (figures_folder(kind, f"{sweep}/{file_name(request)}") for kind in FIGURES)
    best = best_models_path(f"{sweep}/{file_name(request)}")
    return *figures, best, claims_path(sweep, request), interim_path(sweep, request), request_path(sweep, request)


def removals_folder(sweep: str) -> str:
    """The folder of what is being removed of the sweep."""
    return f"{REMOVALS}/{check_name(sweep)}"


def removal_path(sweep: str, request: str) -> str:
    """The path of the ids of the trials of a request that is being removed."""
    return f"{removals_folder(sweep)}/{file_name(request)}.json"


def holds_history(folder: str) -> bool:
    """Whether it is the folder of some sweep's history."""
    return folder.startswith(f"{HISTORIES}/")


def holds_evaluations(folder: str) -> bool:
    """Whether it is the folder of some sweep's evaluations."""
    return folder.startswith(f"{EVALUATIONS}/")


def sweeps_in(names: Iterable[str]) -> list[str]:
    """The names of the sweeps of which a folder such as `TRIALS` has the entries `names`."""
    return [name.removeprefix(_SWEEP) for name in names if name.startswith(_SWEEP)]


def archive_path(time: str, path: str) -> str:
    """Where what `--fresh` replaced at a time, which had the path `path`, lies."""
    return f"{ARCHIVES}/{time}/{path}"


def copying_path(archive: str, sweep: str) -> str:
    """The mark of an archive to which results of a sweep are still being copied."""
    return f"{archive}/copying/{_SWEEP}{sweep}"


def damaged_folder(folder: str) -> str:
    """The folder to which the damaged files of a folder are moved."""
    return f"{DAMAGED}/{folder}"


def new_archive(now: datetime) -> str:
    """A new folder in `ARCHIVES`."""
    return f"{ARCHIVES}/{timestamp(now)}"


def timestamp(now: datetime) -> str:
    """The time `now`, in UTC, as part of a file's or a folder's name."""
    return f"{now:%Y%m%dT%H%M%S.%fZ}"
