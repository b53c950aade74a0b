"""Rows of a small sweep, for the tests of the store.

Ways in which files of a store are damaged.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from sweeper.storage.files import Files
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from trainables.training.model_metadata import ENTRY, FORMAT, digest_of

COLUMNS = Columns({"method": str, "dataset": str, "nu": float, "k": int, "flip": bool}, ("auroc", "entropy"))


def row(trial: str, status: str = "finished", **more: object) -> dict[str, object]:
    fixed = {
        "trial_id": trial,
        "status": status,
        "cohort": "c0",
        "cohort_size": 2,
        "epochs_run": 3,
        "seconds": 1.5,
        "started": datetime(2026, 1, 1, tzinfo=UTC),
        "ended": datetime(2026, 1, 2, tzinfo=UTC),
    }
    return {**fixed, "method": "vje", "dataset": "digits", "nu": 3.0, "k": 30, "flip": True, "auroc": 0.9, **more}


def folder(store: Store, kind: str = "trials") -> Path:
    local = store.files.local_folder
    assert local is not None
    return local / kind / "sweep=grid"


def model(weights: bytes) -> bytes:
    """The file of a model with one tensor of these bytes."""
    content = {"format": FORMAT, "config": {}, "shapes": {}, "inputs": {}, "digest": digest_of({"weights": weights})}
    tensor = {"dtype": "U8", "shape": [len(weights)], "data_offsets": [0, len(weights)]}
    header = json.dumps({"__metadata__": {ENTRY: json.dumps(content)}, "weights": tensor}).encode()
    return len(header).to_bytes(8, "little") + header + weights


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "wrong magic": lambda data: data[:-4] + b"PAR2",
    "bit flipped": lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:],
}


def flipped(files: Files, path: str, how: str = "bit flipped") -> bytes:
    """Damage the file, and return its new content."""
    data = files.read(path)
    assert data is not None
    files.write(path, DAMAGES[how](data))
    return DAMAGES[how](data)
