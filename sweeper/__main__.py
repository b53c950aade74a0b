"""What `python -m sweeper` starts: the command `sweeper`."""

from sweeper.commands.console import main

main()
