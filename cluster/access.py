"""How a cluster is reached: the address that takes jobs, and the token that shows who asks."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from sweeper.errors import ClusterError

HERE = "http://127.0.0.1:8265"
"""Where Ray's dashboard takes jobs: on the head itself, or with its port forwarded to this machine."""
MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
"""Ray's own variables."""


def address(asked: str | None, environment: Mapping[str, str]) -> str:
    """Where to send the job: as asked, else where Ray's variables say, else HERE. ClusterError for what is no URL."""
    name, text = next(
        (name, text)
        for name, text in [
            ("--address", asked),
            *((name, environment.get(name)) for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")),
            ("--address", HERE),
        ]
        if text is not None
    )
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port and not parts.query
    except ValueError:  # a port that is none
        good = False
    if not good or parts.username:
        raise ClusterError(
            f"{name} must be http://host:port or https://host:port, where the cluster's dashboard is, but got {text!r}"
        )
    return text.rstrip("/")


def check_token(environment: Mapping[str, str], home: Path) -> None:
    """ClusterError where token authentication is on, as it is unless RAY_AUTH_MODE says otherwise, without a token."""
    if not with_token(environment) or environment.get(TOKEN, "").strip():
        return
    path = Path(environment.get(TOKEN_PATH) or home / ".ray/auth_token")
    try:
        if path.expanduser().read_text().strip():
            return
        reason = "is empty"
    except (OSError, UnicodeDecodeError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    raise ClusterError(
        f"a cluster is asked with a token, but {TOKEN} is not set and {path} {reason}; put the cluster's token there, "
        f"name its file in {TOKEN_PATH}, or set {MODE}=disabled for a cluster that asks for none"
    )


def with_token(environment: Mapping[str, str]) -> bool:
    """Whether requests carry a token."""
    return environment.get(MODE, "token").lower() == "token"


def in_clear(url: str) -> bool:
    """Whether what is sent to `url` can be read on its way: no TLS, and another machine."""
    parts = urlsplit(url)
    try:
        loopback = ipaddress.ip_address(str(parts.hostname)).is_loopback
    except ValueError:
        loopback = parts.hostname == "localhost"
    return parts.scheme == "http" and not loopback
