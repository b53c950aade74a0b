"""The token that Ray's processes on this machine ask each other for."""

import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path


def make_token(home: Path, environment: Mapping[str, str]) -> None:
    """Make Ray's token `HOME/.ray/auth_token` if it does not exist, and close it to other users (mode 0600).

    Ray would make it itself, but until it has started the file would be readable by every user that the umask allows.
    """
    if environment.get("RAY_AUTH_TOKEN") or environment.get("RAY_AUTH_TOKEN_PATH"):
        return
    path = home / ".ray/auth_token"
    with contextlib.suppress(OSError):  # Ray reports a home folder that cannot be written to
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            unnamed = path.with_name(f"auth_token.{secrets.token_hex(8)}")
            unnamed.touch(mode=0o600, exist_ok=False)
            unnamed.write_text(secrets.token_hex(32))
            with contextlib.suppress(FileExistsError):  # another driver was first
                os.link(unnamed, path)
            unnamed.unlink()
        path.chmod(0o600)
