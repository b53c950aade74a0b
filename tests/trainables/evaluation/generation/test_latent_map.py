"""The file of a map of latents. Shapes: S samples, M latents of test images, D dimensions."""

import io

import numpy as np
import torch

from trainables.metrics.latent_density import latent_map


def test_samples_lie_with_the_test_latents_that_they_equal() -> None:
    """Two far clusters: each sample is nearest to latents of its own."""
    source = torch.Generator().manual_seed(0)
    labels_M = torch.arange(40) % 2
    centres_2D = torch.tensor([[5.0, 0.0, 0.0], [-5.0, 0.0, 0.0]])
    test_MD = centres_2D[labels_M] + 0.3 * torch.randn(40, 3, generator=source)
    samples_SD = centres_2D[[0, 1, 1, 0]] + 0.3 * torch.randn(4, 3, generator=source)
    with np.load(io.BytesIO(latent_map(samples_SD, test_MD, labels_M, components=7))) as parts:
        samples, test, labels = parts["samples"], parts["test"], parts["labels"]
        assert (parts["dimensions"], parts["components"]) == (3, 7)
    assert samples.shape == (4, 2) and test.shape == (40, 2) and labels.tolist() == labels_M.tolist()
    nearest = np.linalg.norm(samples[:, None] - test, axis=-1).argmin(1)
    assert labels[nearest].tolist() == [0, 1, 1, 0]
