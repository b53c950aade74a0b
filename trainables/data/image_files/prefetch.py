"""Iterate over the images of a data set in parts: tensors stay on a device, files are decoded ahead."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from trainables.data.image_files.decoding import Images


def to_device(images: Images, device: torch.device) -> Images:
    """Move a tensor to the device. Image files are returned unchanged."""
    return images.to(device) if isinstance(images, Tensor) else images


def prefetched(images: Images, parts: Sequence[slice]) -> Iterator[Tensor]:
    """Yield the images of each part. The files of the next part are decoded while the caller works on this one."""
    if isinstance(images, Tensor):
        yield from (images[part] for part in parts)
        return
    with ThreadPoolExecutor(1) as reader:
        previous: Future[Tensor] | None = None
        for part in parts:
            current = reader.submit(images.__getitem__, part)
            if previous:
                yield previous.result()
            previous = current
        if previous:
            yield previous.result()
