"""With this folder on PYTHONPATH, a process and the Ray that it starts believe that the machine has CORES cores."""

import os

os.cpu_count = lambda: int(os.environ["CORES"])
