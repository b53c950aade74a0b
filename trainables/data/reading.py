"""Images of a data set as they are worked on, part by part: tensors stay on a device, files are decoded ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from trainables.data.dataset import Images


def resident(images: Images, device: torch.device) -> Images:
    """Tensors on the device; files stay where they are."""
    return images.to(device) if isinstance(images, Tensor) else images


def in_parts(images: Images, parts: Sequence[slice]) -> Iterator[Tensor]:
    """The images of each part; files of the next one are decoded while the one before is worked on."""
    if isinstance(images, Tensor):
        yield from (images[part] for part in parts)
        return
    with ThreadPoolExecutor(1) as reader:
        before: Future[Tensor] | None = None
        for part in parts:
            here = reader.submit(images.__getitem__, part)
            if before:
                yield before.result()
            before = here
        if before:
            yield before.result()
