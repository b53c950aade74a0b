"""A map of latents in two dimensions by t-SNE, and the file in which the report finds it.

Shapes: S samples, M latents of test images, D dimensions.
"""

import io

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SEED = 0
PERPLEXITY = 30.0
"""Effective number of neighbours of a point, less for fewer than 91 points."""


def tsne(z_ND: Tensor) -> NDArray[np.float32]:
    """The place `[N, 2]` of each latent on the map, by scikit-learn's t-SNE from the principal components."""
    from sklearn.manifold import TSNE  # here: importing scikit-learn would delay every worker

    perplexity = min(PERPLEXITY, (len(z_ND) - 1) / 3)
    model = TSNE(2, perplexity=perplexity, init="pca", random_state=SEED)
    places_N2: NDArray[np.float32] = model.fit_transform(z_ND.cpu().double().numpy()).astype(np.float32)
    return places_N2


def latent_map(samples_SD: Tensor, test_MD: Tensor, labels_M: Tensor, components: int) -> bytes:
    """A map of samples and test latents together, as an `.npz` file: `samples` `[S, 2]`, `test` `[M, 2]`, `labels`
    `[M]`, and the numbers `dimensions` and `components` of the density."""
    places_N2 = tsne(torch.cat([samples_SD, test_MD]))
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        samples=places_N2[: len(samples_SD)],
        test=places_N2[len(samples_SD) :],
        labels=labels_M.cpu().numpy().astype(np.int16),
        dimensions=np.int64(test_MD.shape[-1]),
        components=np.int64(components),
    )
    return buffer.getvalue()
