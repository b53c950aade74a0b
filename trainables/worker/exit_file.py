"""The file beside a cohort's checkpoint in which a process that ends itself says why."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

from trainables.json_input import JsonError, read_json
from trainables.worker.messages import Failure

SUFFIX = ".why"
"""What follows the path of the checkpoint in the path of the file."""


def write_failure(write: Callable[[str, bytes], None], checkpoint: str, run: str, failure: Failure) -> None:
    """Write the failure with `write(path, data)`. `run` is the token of the dispatch that started the cohort."""
    write(checkpoint + SUFFIX, json.dumps({"run": run, **asdict(failure)}).encode())


def parse_failure(data: bytes, run: str) -> Failure | None:
    """Return the failure that `data` holds; None if it is by a process of another run, or damaged."""
    try:
        failure: Failure = read_json(Failure, data)
        return failure if read_json(Mapping[str, str], data).get("run") == run else None
    except JsonError:
        return None
