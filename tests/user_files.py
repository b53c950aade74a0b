"""A user's folder: sweeps and methods outside of this project."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.definition import user_code
from trainables import catalog, config, own_code
from trainables.catalog import installed_methods
from trainables.training import checks, metric_names

CACHES = (config.sections, config.defaults, installed_methods, metric_names._methods_by_metric, checks._checked)
"""What is kept of methods by their names."""
DENOISE = '''
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sweeper import Batch, ImageMethod, Losses, NetworkBuilder, Noise, Noises, Shapes


@dataclass(frozen=True)
class DenoiseConfig:
    sigma: float = 0.3
    """Standard deviation of the noise."""


class Denoise(ImageMethod):
    Config = DenoiseConfig
    fusible = frozenset({"sigma"})

    def __init__(self, config: DenoiseConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.head = nn.Linear(self.features, self.features)

    def noise(self, batch: int) -> Noises:
        return {"pixels": Noise((batch, *self.image_shape), 0)}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        first, second = batch["views"]
        error = self.head(self(first + self.sigma * noise["pixels"])) - self(second)
        return Losses(error.square().mean(), {})
'''
"""A method that keeps the contract and can be stacked."""
CELLS = '''
import numpy as np
from torch.utils.data import Dataset


class Cells(Dataset):
    """Images of 12 x 12 pixels and four channels, of three classes and ten plates."""

    classes = ("round", "long", "split")

    def __init__(self, train):
        rng = np.random.default_rng(0 if train else 1)
        count = 60 if train else 30
        self.targets = np.arange(count) % 3
        self.groups = np.arange(count) // 6
        noise = 60 * rng.random((count, 12, 12, 4))
        self.images = (noise + 60 * self.targets[:, None, None, None]).astype(np.uint8)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.targets[index]
'''
"""A data set."""
TWICE = """

class Twice(Denoise):
    def losses(self, batch, noise):
        losses = super().losses(batch, noise)
        return Losses(2 * losses.total if losses.total.item() < 1e9 else losses.total, {})
"""
"""A method that keeps the contract and cannot be stacked."""


def forget_modules(folder: Path) -> None:
    """Forget what was imported from a folder, and all methods of the user, as a new process has."""
    catalog._own_methods.clear()
    own_code._imported.clear()
    for cache in CACHES:
        cache.cache_clear()
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{folder}/"):
            del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory. What is imported from it is forgotten afterwards."""
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(user_code, "_folders", [])
    monkeypatch.setattr(catalog, "_own_methods", {})
    monkeypatch.setattr(own_code, "_imported", {})
    yield folder
    forget_modules(tmp_path)
