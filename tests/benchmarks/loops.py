"""What benchmarks share: training loops on random images, ours and a plain one, and steps of stacks on a device.

Steps have random inputs that lie on the device already, without data and views.

Shapes: K members, B images or examples, C channels, H rows, W columns.
"""

import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data import Dataset as TorchDataset
from torchvision.transforms import v2

from trainables.catalog import method_of, task_of
from trainables.contract import Batch, ImageMethod, Noises, Shapes
from trainables.data.datasets.catalog import DATASETS
from trainables.data.datasets.dataset import Dataset, Declaration, Source
from trainables.learners.compiled import FindLibrary, Library, Run, StepShape
from trainables.learners.data_parallel import draw_noise
from trainables.learners.stack import Stack
from trainables.sections import TrialConfig
from trainables.training.cohort import TrainingCohort
from trainables.training.compile_step import StepTask, trace
from trainables.training.stacks import build_models, build_stack

RANDOM = "random32"
"""The name in DATASETS of the random images."""
SHAPE = (3, 32, 32)
WARM_UP = 2
"""Steps that are not timed."""
PREFETCH = 2
"""Batches that a worker of the plain loop's DataLoader is ahead, as by default."""
TrainStep = Callable[[Batch, Mapping[str, Tensor]], None]
"""Makes one step with a batch and its noise."""
WORKERS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""Those of the DataLoader: as many as there are cores."""


class Augmented(TorchDataset[tuple[Tensor, ...]]):
    """`count` views of an image, each made alone by torchvision from a PIL image, as its CIFAR10 does."""

    def __init__(self, dataset: Dataset, count: int) -> None:
        self.images = dataset.train_images[:]
        self.count = count
        self.transform = v2.Compose(
            [
                v2.ToPILImage(),
                v2.RandomResizedCrop(32, scale=(0.2, 1.0)),
                v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
                v2.RandomGrayscale(0.2),
                v2.RandomHorizontalFlip(),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(dataset.mean, dataset.std),
            ]
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple(self.transform(self.images[index]) for _ in range(self.count))


def register_random_images(count: int) -> Dataset:
    """A data set of `count` random images of CIFAR-10's shape, under the name RANDOM in DATASETS."""
    source = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, *SHAPE), dtype=torch.uint8, generator=source)
    labels = torch.arange(count) % 10
    classes = tuple("0123456789")
    dataset = Dataset(RANDOM, images, labels, images[:64], labels[:64], classes, 255, (0.5,) * 3, (0.25,) * 3)
    declared = Declaration(SHAPE, 10, (count // 10,) * 10, (6,) * 10)
    cast(dict[str, Source], DATASETS)[RANDOM] = Source(lambda root: dataset, declared, "none")
    return dataset


def our_speed(configs: Sequence[TrialConfig], device: torch.device, steps: int) -> float:
    """Images per second of all members together, views included, over `steps` steps of the first epoch.

    The data must have images for WARM_UP more steps than that.
    """
    cohort = TrainingCohort(configs, Path(), device, None)
    orders = cohort.orders(0)
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            begun = now(device)
        cohort.step(0, step, orders, rate=1.0)
    return steps * configs[0].gradient.batch_size * len(configs) / (now(device) - begun)


def plain_speed(config: TrialConfig, dataset: Dataset, device: torch.device, steps: int) -> float:
    """Images per second of one model: views by torchvision in a DataLoader of WORKERS workers, torch.optim.SGD.

    What the workers are ahead is used up before the clock starts, and they make batches until it stops. They may
    deliver all at once, so `steps` is rounded up to a multiple of their number.
    """
    batch, ahead = config.gradient.batch_size, PREFETCH * WORKERS
    warm_up, steps = WARM_UP + ahead, -(-steps // WORKERS) * WORKERS
    model, train = plain_step(config, SHAPE, device)
    views = Augmented(dataset, model.view_count(config.options))
    loader = DataLoader(
        views, batch, sampler=RandomSampler(views, replacement=True, num_samples=(warm_up + steps + ahead) * batch),
        num_workers=WORKERS, prefetch_factor=PREFETCH, pin_memory=device.type == "cuda",
    )  # fmt: skip
    layout = torch.channels_last if config.gradient.channels_last else torch.contiguous_format
    batches = iter(loader)

    def advance(count: int) -> None:
        for views_BCHW in itertools.islice(batches, count):
            on_device = (view_BCHW.to(device, non_blocking=True, memory_format=layout) for view_BCHW in views_BCHW)
            train({"views": tuple(on_device)}, random_noise(model.noise(batch), device))

    advance(warm_up)
    begun = now(device)
    advance(steps)
    return steps * batch / (now(device) - begun)


def plain_step(
    config: TrialConfig, image_shape: tuple[int, ...], device: torch.device
) -> tuple[ImageMethod, TrainStep]:
    """A fresh model for images `(C, H, W)`, and what trains it by one step."""
    training = config.gradient
    (model,) = build_models([config], {"views": image_shape})
    assert isinstance(model, ImageMethod)
    model = model.to(device)
    if training.channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(
        model.parameters(), lr=training.lr, momentum=training.momentum, weight_decay=training.weight_decay
    )

    def step(batch: Batch, noise: Mapping[str, Tensor]) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=training.precision == "bfloat16"):
            loss = model.losses(batch, noise).total
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        model.after_step(random_noise(model.after_step_noise(), device))

    return model, step


def random_noise(noises: Noises, device: torch.device) -> dict[str, Tensor]:
    """The declared noise from torch's global generator."""
    return {
        name: (torch.randn if noise.kind == "normal" else torch.rand)(noise.shape, device=device)
        for name, noise in noises.items()
    }


def now(device: torch.device) -> float:
    """Seconds, once all that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


Compile = Callable[[GraphModule, list[Tensor]], Callable[..., Any]]
"""Compiles a traced step, given arguments of the right shapes."""


class Inputs(NamedTuple):
    """What a step takes beside the tensors of its stack."""

    batch: Batch
    noise: dict[str, Tensor]
    after_noise: dict[str, Tensor]

    def in_layout(self, layout: torch.memory_format) -> "Inputs":
        """The same inputs, with images `[B, C, H, W]` in another memory format."""

        def laid_out(tensor: Tensor) -> Tensor:
            return tensor.contiguous(memory_format=layout) if tensor.dim() == 4 else tensor

        return self._replace(batch=tree_map(laid_out, self.batch))


class Workload(NamedTuple):
    """The members of a stack and their inputs, which all of them share."""

    configs: Sequence[TrialConfig]
    shapes: Shapes
    inputs: Inputs
    device: torch.device

    @classmethod
    def of(cls, configs: Sequence[TrialConfig], device: torch.device) -> "Workload":
        """A batch of random examples for members of one shape. Raises ValueError if their task has no such batch."""
        first = configs[0]
        size = first.gradient.batch_size
        made = task_of(first.method).random_batch(first, method_of(first.method), size)
        if made is None:
            raise ValueError(f"{first.method} has no random examples")
        (model,) = build_models([first], made.shapes)

        def draw(noises: Noises, name: str) -> dict[str, Tensor]:
            return draw_noise(noises, name, device=device)

        batch = tree_map(lambda tensor: tensor.to(device), dict(made.batch))
        inputs = Inputs(batch, draw(model.noise(size), "noise"), draw(model.after_step_noise(), "after_step"))
        return cls(configs, made.shapes, inputs, device)

    def first(self, count: int) -> "Workload":
        """The same with fewer members."""
        return self._replace(configs=self.configs[:count])

    def in_layout(self, layout: torch.memory_format) -> "Workload":
        """The same with images in another memory format."""
        return self._replace(inputs=self.inputs.in_layout(layout))

    def member(self, index: int) -> "Workload":
        """The same with this member alone."""
        return self._replace(configs=self.configs[index : index + 1])

    def stack(self, find: Callable[[StepTask], Library] | None = None) -> Stack:
        """One stack of all members; with `find` its steps are compiled, and an error of `find` is raised by the first
        of them."""
        find_library: FindLibrary | None = None
        if find:
            compile_step = find

            def find_library(step: StepShape) -> Library:
                return compile_step(StepTask.of(self.configs[0], self.shapes, step))

        models, streams = build_models(self.configs, self.shapes), [0] * len(self.configs)
        stack = build_stack(models, self.configs, streams, self.device, find_library=find_library)
        if not isinstance(stack, Stack):
            raise ValueError(f"{self.configs[0].method} does not learn by gradients")
        return stack

    def step(self, stack: Stack) -> Tensor:
        """Make a step; return the losses before it, `[K]`."""
        batch, noise, after_noise = self.inputs
        return stack.step([batch], [noise], [after_noise], 1.0).total


class LoadedLibrary(NamedTuple):
    """A compiled step of this process."""

    parts: tuple[str, ...]
    run: Run

    def load(self, device: str) -> Run:
        return self.run


class StepsOfThisProcess:
    """Traces steps as sweeps do, and compiles them in this process. Each is compiled once; an error is kept as well."""

    def __init__(self, compile_graph: Compile) -> None:
        self._compile, self._done = compile_graph, dict[str, Library | Exception]()
        self.seconds = 0.0
        """What all compilations took together."""

    def __call__(self, task: StepTask) -> Library:
        key = task.digest([task.config["method"]])
        if key not in self._done:
            begun = time.perf_counter()
            try:
                self._done[key] = self._library(task)
            except Exception as error:  # whatever a compiler raises
                self._done[key] = error.with_traceback(None)  # which holds tensors
            self.seconds += time.perf_counter() - begun
        done = self._done[key]
        if isinstance(done, Exception):
            raise done
        return done

    def _library(self, task: StepTask) -> Library:
        graph, arguments, names = trace(task)
        compiled = self._compile(graph, arguments)
        return LoadedLibrary(tuple(names), lambda tensors: list(compiled(*tensors)))


def inductor(graph: GraphModule, arguments: list[Tensor]) -> Callable[..., Any]:
    """Compile with PyTorch's default compiler."""
    import torch._inductor

    with torch.no_grad():
        compiled: Callable[..., Any] = torch._inductor.compile(graph, [*arguments])
    return compiled


def uncompiled(graph: GraphModule, arguments: list[Tensor]) -> Callable[..., Any]:
    """The traced step as it is, for tests: it takes no compiler."""
    return graph
