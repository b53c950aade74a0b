"""What the errors of libraries stand for."""

import errno

import pytest
import torch

from tests.cases import for_each
from trainables.reports import UnusableGpu, is_out_of_memory, raise_gpu_fault


@for_each(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        torch.OutOfMemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("GET was unable to find an engine to execute this computation"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_memory_that_is_missing_is_known_in_all_words(error: Exception) -> None:
    assert is_out_of_memory(error)


@for_each("error", [RuntimeError("shapes do not match"), ValueError("out of memory"), OSError(errno.ENOENT, "none")])
def test_other_errors_are_not_about_memory(error: Exception) -> None:
    assert not is_out_of_memory(error)


@for_each(
    "line",
    [
        "CUDA error: uncorrectable ECC error encountered",
        "CUDA error: no CUDA-capable device is detected",
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "Unable to determine the device handle for GPU: GPU is lost. Reboot the system to recover this GPU",
        "CUDA unknown error - this may be due to an incorrectly set up environment",
    ],
)
def test_an_error_of_the_gpu_itself_is_not_the_trials(line: str) -> None:
    with pytest.raises(UnusableGpu) as raised:
        raise_gpu_fault(torch.AcceleratorError(f"{line}\nCUDA kernel errors might be asynchronously reported"))
    assert str(raised.value) == line


@for_each("error", [RuntimeError("CUDA error: device-side assert triggered"), ValueError("uncorrectable ecc")])
def test_an_error_of_a_program_is_none_of_the_gpu(error: Exception) -> None:
    raise_gpu_fault(error)
