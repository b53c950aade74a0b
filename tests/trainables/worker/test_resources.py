import pickle
import platform
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from trainables.reports import UnusableGpu
from trainables.worker import ray_train, resources
from trainables.worker.messages import DeviceShare
from trainables.worker.ray_train import assigned_device, device_share
from trainables.worker.resources import driver_version, environment_of, limited, usable_gpu

VERSION = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024
GCC version:  gcc version 12.2.0
"""
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (dvs-builder)\n"


def test_on_a_cpu_there_is_neither_cuda_nor_a_driver() -> None:
    environment = environment_of(torch.device("cpu"))
    assert (environment.python, environment.torch) == (platform.python_version(), torch.__version__)
    assert environment.cuda is None and environment.driver is None


def test_the_driver_is_read_from_the_text_of_its_kernel_module(tmp_path: Path) -> None:
    file = tmp_path / "version"
    assert driver_version(file) is None
    for text, version in ((VERSION, "550.54.15"), (OPEN, "570.124.06"), ("no driver", None)):
        file.write_text(text)
        assert driver_version(file) == version


@pytest.mark.parametrize(("cuda", "built"), [("12.8", "built for CUDA 12.8"), (None, "built for CPUs only")])
def test_a_gpu_that_pytorch_cannot_use_is_an_error_with_the_versions(
    cuda: str | None, built: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040). Please update it")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(resources, "driver_version", lambda: "470.57.02")
    with pytest.raises(UnusableGpu) as raised:
        usable_gpu()
    assert str(raised.value) == (
        "Ray assigns a GPU, but PyTorch cannot use one: The NVIDIA driver on your system is too old (found version "
        f"11040) (NVIDIA driver 470.57.02, PyTorch {torch.__version__} {built})"
    )


def test_a_worker_trains_on_its_gpu_or_without_one_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never on the CPU where Ray assigned a GPU, unless the node says that its GPUs are simulated."""
    own = SimpleNamespace(get_gpu_ids=lambda: [0], get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "n"))
    monkeypatch.setattr(ray_train, "ray", own)
    monkeypatch.setattr(ray_train, "_node_resources", lambda: {"GPU": 1.0})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert assigned_device() == torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UnusableGpu) as raised:
        assigned_device()
    assert pickle.loads(pickle.dumps(raised.value)).node == "n"
    monkeypatch.setattr(ray_train, "_node_resources", lambda: {"GPU": 1.0, "simulated_gpu": 1.0})
    assert assigned_device() == torch.device("cpu")
    monkeypatch.setattr(own, "get_gpu_ids", list)
    monkeypatch.setattr(ray_train, "_node_resources", dict)
    assert assigned_device() == torch.device("cpu")


def test_an_error_of_the_gpu_itself_leaves_a_training_as_such() -> None:
    with pytest.raises(UnusableGpu, match=r"^CUDA error: uncorrectable ECC"), limited(torch.device("cpu"), None, "it"):
        raise torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered")


def test_a_cohort_reserves_parts_of_gpus_or_cores_of_its_node() -> None:
    node = {"CPU": 96.0, "GPU": 8.0, "accelerator_type:H100": 1.0, "memory": 1e9}
    assert device_share({"GPU": 0.25, "CPU": 3.0}, node, 1) == DeviceShare(0.25, 8.0, "H100")
    assert device_share({"GPU": 1.0, "CPU": 3.0}, node, 4) == DeviceShare(4.0, 8.0, "H100")
    assert device_share({"CPU": 2.0}, node, 1) == DeviceShare(2.0, 96.0, ""), "cores have no kind"
    assert device_share({"CPU": 0.5}, {}, 1) == DeviceShare(0.5, 1.0), "an unknown node has this device alone"
