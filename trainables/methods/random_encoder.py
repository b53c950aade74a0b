"""An untrained encoder, the baseline for all training (SimVAE, section 4)."""

from __future__ import annotations

from dataclasses import dataclass

from trainables.contract import Method


@dataclass(frozen=True)
class RandomEncoderConfig:
    """No hyperparameters."""


class RandomEncoder(Method):
    """Does not train: its trials have `epochs=0` and are evaluated as initialised."""

    Config = RandomEncoderConfig
