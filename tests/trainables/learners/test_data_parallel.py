"""Several processes that train one cohort: the same result as one process with the whole batch.

Shapes: K members, B images.
"""

import multiprocessing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.cases import for_each
from tests.image_files import write_imagenet
from tests.trainables.small import at_ends, content_of
from trainables.config import resolve
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.sections import TrialConfig, Value
from trainables.training.train import Checkpointing, train

SIZE = 2


@for_each("count", [0, 1, 2, 7, 256])
@for_each("size", [1, 2, 3, 8])
def test_parts_are_disjoint_whole_and_even(count: int, size: int) -> None:
    parts = [range(count)[Peers(rank, size).slice_of(count)] for rank in range(size)]
    assert [index for part in parts for index in part] == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_single_process_communicates_nothing() -> None:
    whole = torch.randn(2, 5, 3)
    before = whole.clone()
    SINGLE_PROCESS.average([whole])
    assert torch.equal(whole, before) and SINGLE_PROCESS.gather(whole, 5) is whole


def _config(**changes: Value) -> TrialConfig:
    """Without BatchNorm, which would see only the part of a batch that its process has."""
    return resolve(
        {
            "method": "vje", "dataset": "imagenet", "encoder": "mlp", "width": 8, "features": 6, "bottleneck": 8,
            "batch_size": 12, "epochs": 2, "lr": 0.01, "crop_scale": 0.2, "flip": 0.5, "jitter": 0.8, "brightness": 0.4,
            "greyscale": 0.2, "blur": 0.5, "knn": 3, "probe_epochs": 3, **changes,
        }
    )  # fmt: skip


CASES: dict[str, dict[str, Value]] = {
    "files with warm-up, decay, outliers": {"warmup_epochs": 1, "weight_decay": 0.01, "outliers": "inverted"},
    "resident images": {"dataset": "digits", "batch_size": 240, "blur": 0.0},
    "clipped gradients of parts": {
        **{"dataset": "digits", "batch_size": 240, "blur": 0.0, "accumulate": 2, "clip_grad_norm": 0.5},
        **{"lr_schedule": "exponential", "lr_gamma": 0.5},
    },
    "BatchNorm": {"dataset": "digits", "batch_size": 240, "blur": 0.0, "encoder": "convnet"},
}


def _given(case: str, **changes: Value) -> list[TrialConfig]:
    """Two members of different seeds."""
    return [_config(**{**CASES[case], **changes, "seed": seed}) for seed in (0, 1)]


@dataclass
class Outcome:
    """The metrics that a process reported, and the tensors of its last checkpoint."""

    metrics: list[list[dict[str, float | None]]]
    tensors: dict[str, Tensor]


def _outcome(configs: list[TrialConfig], data: str, peers: Peers) -> Outcome:
    saved: list[bytes] = []
    reports = list(
        train(configs, Path(data), width=1, checkpointing=Checkpointing(save=at_ends(saved), every=0.0), peers=peers)
    )
    metrics = [[dict(member.metrics) for member in report.members] for report in reports]
    state = content_of(saved[-1])["state"]
    tensors = {
        f"{k} {kind} {name}": t for k, stack in enumerate(state) for kind in stack for name, t in stack[kind].items()
    }
    return Outcome(metrics, tensors)


def _work(rank: int, data: str, out: str) -> None:
    """The main function of one process: all cases in turn."""
    torch.set_num_threads(1)
    meeting, peers = f"file://{out}/meeting", Peers(rank, SIZE)
    dist.init_process_group("gloo", meeting, timedelta(seconds=60), world_size=SIZE, rank=rank)
    outcomes = {case: _outcome(_given(case, workers=SIZE), data, peers) for case in CASES}
    gathered = peers.gather(torch.arange(7.0)[None, peers.slice_of(7), None], 7)
    plain = {case: (outcome.metrics, outcome.tensors) for case, outcome in outcomes.items()}
    torch.save((plain, gathered), f"{out}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_equal_one_with_the_whole_batch(tmp_path: Path) -> None:
    """Losses, weights and momenta of both members agree, with gloo on the CPU, for tensors and image files."""
    data = str(tmp_path / "data")
    write_imagenet(tmp_path / "data")
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_work, args=(rank, data, str(tmp_path))) for rank in range(SIZE)]
    for process in processes:
        process.start()
    alone = {case: _outcome(_given(case), data, SINGLE_PROCESS) for case in CASES}
    for process in processes:
        process.join(240)
        assert process.exitcode == 0
    (first, gathered), (second, _) = (torch.load(tmp_path / f"{rank}.pt") for rank in range(SIZE))
    assert gathered.flatten().tolist() == list(range(7))
    for case, expected in alone.items():
        (metrics, tensors), (other_metrics, other_tensors) = first[case], second[case]
        assert metrics == other_metrics and all(torch.equal(other_tensors[name], tensors[name]) for name in tensors)
        differing = [name for name, tensor in tensors.items() if not _close(tensor, expected.tensors[name])]
        assert bool(differing) == (case == "BatchNorm"), differing  # its statistics are of half the batch
        if not differing:
            for report, expected_report in zip(metrics, expected.metrics, strict=True):
                losses = [member["loss"] for member in report]
                assert losses == pytest.approx([member["loss"] for member in expected_report], rel=1e-4)


def _close(left: Tensor, right: Tensor) -> bool:
    return torch.allclose(left.double(), right.double(), rtol=1e-3, atol=1e-5)
