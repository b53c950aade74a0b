"""What a newcomer sees: the digits grid from a cold start, its wall time, and the memory of all its processes together.

`python -m tests.benchmarks.bench_demo [--address ...]` runs `python -m sweeper.run anomaly_grid --preset digits` into a
folder of its own; further arguments are passed on.
"""

import subprocess
import sys
import tempfile
import time

import psutil

from sweeper.storage.load import load

SAMPLE_SECONDS = 2.0


def main() -> None:
    with tempfile.TemporaryDirectory() as store:
        command = [sys.executable, "-m", "sweeper.run", "anomaly_grid", "--preset", "digits", "--store", store]
        begun = time.perf_counter()
        driver = subprocess.Popen([*command, *sys.argv[1:]])
        resident = shared_once = processes = 0
        while driver.poll() is None:
            memory = _memory(psutil.Process(driver.pid))
            resident, shared_once, processes = (
                max(pair) for pair in zip(memory, (resident, shared_once, processes), strict=True)
            )
            time.sleep(SAMPLE_SECONDS)
        seconds = time.perf_counter() - begun
        rows = load("anomaly_grid", store)
    means = rows.groupby(["beta", "nu"])["auroc_joint"].mean()
    ms = seconds / len(rows) * 1000
    print(f"\n{len(rows)} models in {seconds:.1f} s wall ({ms:.0f} ms a model), exit status {driver.returncode}")
    print(f"peak memory of {processes} processes: {resident / 2**30:.2f} GiB, shared pages counted in each process,")
    print(f"  {shared_once / 2**30:.2f} GiB with each page counted once")
    print(f"class-averaged auroc_joint: best {means.max():.3f}, worst {means.min():.3f}")
    print(f"training seconds over all cohorts: {rows['seconds'].sum():.1f}")


def _memory(driver: psutil.Process) -> tuple[int, int, int]:
    """Resident and proportional (PSS) bytes of the process and all its descendants, and their number."""
    resident = proportional = count = 0
    try:
        processes = [driver, *driver.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0, 0, 0
    for process in processes:
        try:
            memory = process.memory_full_info()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        resident, proportional, count = resident + memory.rss, proportional + memory.pss, count + 1
    return resident, proportional, count


if __name__ == "__main__":
    main()
