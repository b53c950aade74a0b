"""Random numbers that derive from a trial's own content, never from the state of a running generator.

A member therefore draws the same numbers alone, fused or resumed, and on any device.
"""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from trainables.contract import Noises
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers


def seeded_generator(*key: object) -> torch.Generator:
    """A CPU generator whose seed is a hash of `key`."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def numpy_seed(*key: object) -> int:
    """A seed that NumPy and scikit-learn take, in [0, 2**32): a hash of `key`."""
    return seeded_generator(*key).initial_seed() % 2**32


def draw_noise(
    noises: Noises, *key: object, device: torch.device | str = "cpu", peers: Peers = SINGLE_PROCESS
) -> dict[str, Tensor]:
    """Draw the noise that `noises` declares, in their order, from a generator seeded by `key`. It is drawn for the
    whole batch; the result is this process's part."""
    if not noises:
        return {}
    generator = seeded_generator(*key)
    drawn: Mapping[str, Tensor] = {
        name: (torch.randn if noise.kind == "normal" else torch.rand)(noise.shape, generator=generator)
        for name, noise in noises.items()
    }
    parts = {}
    for name, values in drawn.items():
        batch_dim = noises[name].batch_dim
        if batch_dim is not None:
            part = peers.slice_of(values.shape[batch_dim])
            values = values.narrow(batch_dim, part.start, part.stop - part.start)
        parts[name] = values.to(device)
    return parts
