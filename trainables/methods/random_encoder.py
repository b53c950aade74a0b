"""An untrained encoder: what any training has to beat (simvae.md, section 4)."""

from __future__ import annotations

from dataclasses import dataclass

from trainables.contract import Method


@dataclass(frozen=True)
class RandomEncoderConfig:
    """It has no hyperparameters."""


class RandomEncoder(Method):
    """Has no losses, so its trials have `epochs=0` and are evaluated as initialised."""

    Config = RandomEncoderConfig
