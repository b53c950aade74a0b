"""Access to a cluster: the address of its job server, and the token that authenticates requests."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from sweeper.errors import ClusterError
from sweeper.masking import remember

LOCAL_DASHBOARD = "http://127.0.0.1:8265"
"""Address of Ray's dashboard, which takes jobs: on the head itself, or with its port forwarded to this machine."""
MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
"""Ray's environment variables for token authentication."""


def address(requested: str | None, environment: Mapping[str, str]) -> str:
    """Address to send the job to: `requested`, else that of Ray's environment variables, else `LOCAL_DASHBOARD`.

    Raises ClusterError if it is not a URL of the form `http://host:port`.
    """
    name, text = next(
        (name, text)
        for name, text in [
            ("--address", requested),
            *((name, environment.get(name)) for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")),
            ("--address", LOCAL_DASHBOARD),
        ]
        if text is not None
    )
    remember(text)
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port and not parts.query
    except ValueError:  # the port is not a number, or out of range
        valid = False
    if not valid or parts.username:
        raise ClusterError(
            f"{name} must be the URL of the cluster's dashboard, http://host:port or https://host:port"
            f"{' without a user' if '@' in text else ''}, but got {text!r}"
        )
    return text.rstrip("/")


def check_token(environment: Mapping[str, str], home: Path) -> None:
    """Raise ClusterError if token authentication is on, but there is no token.

    It is on unless `RAY_AUTH_MODE` says otherwise. `home` is the home folder, where Ray keeps a token by default.
    """
    if not token_enabled(environment) or environment.get(TOKEN, "").strip():
        return
    path = Path(environment.get(TOKEN_PATH) or home / ".ray/auth_token")
    try:
        if path.expanduser().read_text().strip():
            return
        reason = "is empty"
    except (OSError, UnicodeDecodeError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    raise ClusterError(
        f"a cluster requires a token, but {TOKEN} is not set and {path} {reason}; put the cluster's token there, "
        f"name its file in {TOKEN_PATH}, or set {MODE}=disabled for a cluster without authentication"
    )


def token_enabled(environment: Mapping[str, str]) -> bool:
    return environment.get(MODE, "token").lower() == "token"


def is_unencrypted(url: str) -> bool:
    """Whether requests to `url` travel unencrypted to another machine."""
    parts = urlsplit(url)
    try:
        loopback = ipaddress.ip_address(str(parts.hostname)).is_loopback
    except ValueError:
        loopback = parts.hostname == "localhost"
    return parts.scheme == "http" and not loopback
