"""A session of Python that runs sweeps, as a notebook does: `python -m tests.end_to_end.session STORE`."""

import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import ray

import sweeper
from sweeper.storage.files import Files
from sweeper.storage.logs import read_log
from tests.sweeper.small_sweeps import TINY
from tests.user_files import DENOISE

SWEEP = """
from sweeper import Grid, Metric, Sweep, Table

KEYS = {"method": "denoise:Denoise", "dataset": "digits", "epochs": 1, "knn": 5}
TABLE = Table("knn", ("sigma",), (Metric("knn_z", "maximize"),))
SWEEP = Sweep("mine", {"tiny": Grid(KEYS, {"sigma": (0.1, 0.2)})}, figures=(TABLE,), name="own")
"""

PRINTS = DENOISE.replace("first, second", "print('a step', flush=True)\n        first, second")
"""A method that prints."""


def own_sweep() -> str:
    """A file with a sweep, in a folder with its method."""
    folder = Path(tempfile.mkdtemp())
    (folder / "denoise.py").write_text(PRINTS)
    (folder / "own_sweep.py").write_text(SWEEP)
    return str(folder / "own_sweep.py")


def main(store: str) -> None:
    folder = os.getcwd()
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=tempfile.mkdtemp(prefix="j"))
    rows = sweeper.run(own_sweep(), store=store, cohort=2)
    assert set(rows["status"]) == {"finished"}, "modules that came after Ray had started"
    logs = [read_log(Files(store), "own", trial) or "" for trial in rows["trial_id"]]
    assert len(logs) == 2 and all(log.startswith("a step\na step\n") for log in logs), logs
    assert ray.is_initialized() and os.getcwd() == folder
    ray.shutdown()

    def interrupt() -> None:
        while not os.path.exists(f"{store}/trials/sweep=mine"):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        sweeper.run(TINY, name="mine", store=store, cohort=1, set={"epochs": 30})
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    assert not ray.is_initialized() and os.getcwd() == folder
    rows = sweeper.run(TINY, name="mine", store=store, cohort=1, set={"epochs": 30}, debug=True)
    assert set(rows["status"]) == {"finished"} and not ray.is_initialized()
    model = sweeper.load_model(store, rows["trial_id"][0])
    assert model.config == sweeper.config_of(rows.iloc[0])
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
