"""Benchmarks whose steps differ in form measure the same steps, and say what they cannot."""

import re
import subprocess
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from tests.benchmarks import bench_compiled, bench_scale
from tests.benchmarks.bench_gpu import (
    FORMS,
    Clock,
    Settings,
    Tools,
    compare,
    flop_of_step,
    matmul_peak,
    measure,
    workload,
)
from tests.benchmarks.loops import StepsOfThisProcess, uncompiled
from trainables.catalog import METHODS as CATALOG
from trainables.contract import ImageMethod
from trainables.image_trial import ImageTrial
from trainables.learners.compiled import Library
from trainables.sections import Value
from trainables.training.compile_step import StepTask
from trainables.training.stacks import build_models

CPU = torch.device("cpu")
TINY: dict[str, Value] = {"batch_size": 4, "width": 4, "features": 4, "bottleneck": 4}


def no_compiler(graph: GraphModule, arguments: list[Tensor]) -> GraphModule:
    raise RuntimeError("\n there is no compiler\nbut a long story")


def lines_of(
    capsys: pytest.CaptureFixture[str], network: str, *forms: str, compile_graph=uncompiled, seconds: float = 600.0
) -> list[str]:
    tools = Tools(StepsOfThisProcess(compile_graph), streams=2)
    settings = Settings(CPU, "NCHW", 1e9, 0.0, Clock(seconds), tools)
    compare(network, workload(network, 2, CPU, TINY), forms, [1, 2], settings)
    return capsys.readouterr().out.splitlines()


@pytest.mark.slow
def test_every_form_of_a_cpu_has_the_losses_of_the_eager_one(capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(capsys, "convnet", "eager", "compiled", "stacked NCHW", "stacked NHWC")
    assert [line.split()[-6] for line in lines] == ["1", "2"] * 4
    assert all(float(line.split()[-1]) < 1e-4 for line in lines)
    assert all(float(line.split()[-5]) > 0 for line in lines)


@pytest.mark.slow
def test_a_form_that_fails_is_one_line_and_the_next_one_runs(capsys: pytest.CaptureFixture[str]) -> None:
    failed, *others = lines_of(capsys, "mlp", "compiled", "eager", compile_graph=no_compiler)
    assert (
        failed == "mlp       compiled         1   failed, and not tried with more: RuntimeError: there is no compiler"
    )
    assert len(others) == 2


def test_what_a_device_or_a_network_lacks_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(capsys, "mlp", *(name for name, form in FORMS.items() if form.graph), "stacked NHWC")
    assert [line.partition("skipped: ")[2] for line in lines] == [
        *["there are no CUDA graphs on a CPU"] * 3,
        "mlp flattens its images",
    ]


def test_what_does_not_fit_into_the_time_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(capsys, "mlp", "eager", "compiled", seconds=0.0)
    assert ["skipped: it needs" in line for line in lines] == [True, True]


@pytest.mark.slow
def test_a_model_is_compiled_once_for_all_members_and_forms() -> None:
    graphs = []

    def counted(graph: GraphModule, arguments: list[Tensor]) -> GraphModule:
        graphs.append(graph)
        return graph

    tools = Tools(StepsOfThisProcess(counted), streams=2)
    for _ in range(2):
        measure(FORMS["compiled"], workload("mlp", 2, CPU, TINY), tools, 0.0)
    assert len(graphs) == 1


@pytest.mark.slow
def test_an_error_of_the_compiler_is_raised_again_without_compiling() -> None:
    find, tasks = StepsOfThisProcess(no_compiler), list[StepTask]()

    def noted(task: StepTask) -> Library:
        tasks.append(task)
        return find(task)

    work = workload("mlp", 1, CPU, TINY)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no compiler"):
            work.step(work.stack(noted))
    assert len(tasks) == 2
    assert find.seconds > 0


def test_flop_are_those_of_the_matmuls() -> None:
    """The outputs and the gradients of weights and inputs of each linear layer; the pixels need no gradient."""
    work = workload("mlp", 1, CPU, TINY)
    (model,) = build_models(work.configs, work.shapes)
    first, *others = (layer.weight.numel() for layer in model.modules() if isinstance(layer, nn.Linear))
    rows = 2 * 4  # views, examples
    assert flop_of_step(work) == 2 * rows * (2 * first + 3 * sum(others))


@pytest.mark.slow
def test_the_peak_counts_two_flop_for_each_product() -> None:
    assert 1e6 < matmul_peak(CPU, torch.float32, 64) < 1e13


@pytest.mark.slow
def test_neither_ray_nor_optuna_is_imported() -> None:
    block = "import sys; sys.modules |= dict.fromkeys(('ray', 'optuna'))"  # importing these raises
    code = f"{block}; import tests.benchmarks.bench_gpu"
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


def test_every_image_method_that_learns_by_gradients_is_measured() -> None:
    learning = [name for name, method in CATALOG.items() if method.trains() and not method.fitted()]
    assert [name for name in learning if issubclass(CATALOG[name], ImageMethod)] == bench_compiled.METHODS


@pytest.mark.parametrize("encoder", bench_compiled.PRESETS)
def test_a_workload_has_the_encoder_and_equal_members(encoder: str) -> None:
    work = bench_compiled.workload("simclr", encoder, 2)
    stack = work.stack()
    losses_K = work.step(stack)
    assert losses_K.shape == (2,)
    assert losses_K[0] == losses_K[1]
    assert any(name.startswith("method.encoder") for name in stack.parameters)
    for config in work.configs:
        assert isinstance(config, ImageTrial)
        assert config.encoder.encoder == encoder


def test_weights_differ_by_a_share_of_the_largest_of_their_tensor() -> None:
    work = bench_compiled.workload("vje", "mlp", 1)
    first, second = work.stack(), work.stack()
    assert bench_compiled.weights_difference(first, second) == 0
    with torch.no_grad():
        weights = second.parameters["method.encoder.layers.1.weight"]
        largest = weights.abs().max()
        weights.flatten()[0] += 0.5 * largest
    assert bench_compiled.weights_difference(first, second) == pytest.approx(0.5)


def test_steps_are_measured_in_turns() -> None:
    calls: list[str] = []
    seconds = bench_compiled.medians({"a": partial(calls.append, "a"), "b": partial(calls.append, "b")}, 0.0)
    assert set(seconds) == {"a", "b"}
    assert "".join(calls).endswith("ab" * 7)


@pytest.mark.slow
def test_a_cluster_on_paper_trains_all_though_its_nodes_are_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The benchmark itself asserts that each trial has a row. What its GPUs do adds up, and beats no bound."""
    picture = tmp_path / "scale.svg"
    options = Namespace(gpus=16, trials=560, loss_hours=0.3, reports=4, figure=str(picture))
    bench_scale.paper(options, str(tmp_path / "store"))
    lines = capsys.readouterr().out.splitlines()
    (nodes_lost,) = (int(line.split(", ")[-1].split()[0]) for line in lines if "node was lost" in line)
    shares = {line.split(":")[0]: re.findall(r"([\d.]+)%", line) for line in lines if line[:2] in ("H1", "A1", "T4")}
    assert lines[0].endswith("T4, which would gain little") and "T4: is away" in lines[-1]
    assert nodes_lost > 0 and list(shares) == ["H100", "A100", "T4"]
    assert all(sum(map(float, own)) == pytest.approx(100, abs=0.5) for own in shares.values())
    (share,) = (float(line.split()[-1].rstrip("%")) for line in lines if line.startswith("hours: "))
    assert 10 < share < 100 and picture.read_text().startswith("<svg")
