import platform
from pathlib import Path

import torch

from trainables.worker.messages import DeviceShare
from trainables.worker.ray_train import device_share
from trainables.worker.resources import driver_version, environment_of

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


def test_a_cohort_reserves_parts_of_gpus_or_cores_of_its_node() -> None:
    node = {"CPU": 96.0, "GPU": 8.0, "accelerator_type:H100": 1.0, "memory": 1e9}
    assert device_share({"GPU": 0.25, "CPU": 3.0}, node, 1) == DeviceShare(0.25, 8.0, "H100")
    assert device_share({"GPU": 1.0, "CPU": 3.0}, node, 4) == DeviceShare(4.0, 8.0, "H100")
    assert device_share({"CPU": 2.0}, node, 1) == DeviceShare(2.0, 96.0, ""), "cores have no kind"
    assert device_share({"CPU": 0.5}, {}, 1) == DeviceShare(0.5, 1.0), "an unknown node has this device alone"
