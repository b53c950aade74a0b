"""What `python -m sweeper.run` starts: the command `sweeper run`.

It cannot be imported: an import would put this module in the place of the function `sweeper.run`.
"""

import sys

if __name__ == "sweeper.run":
    raise ImportError("sweeper.run is a function: from sweeper import run; its command line is sweeper.commands.run")

if __name__ == "__main__":
    from sweeper.commands.console import start

    start("run", sys.argv[1:])
