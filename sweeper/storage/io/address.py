"""A store's address as typed: a folder, or a URI `scheme://...`; and as it may be shown, without its secrets."""

from __future__ import annotations

import os
import re

SCHEMES = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""What pyarrow opens."""
PLAIN_OPTIONS = frozenset(
    {
        *("scheme", "endpoint_override", "region", "anonymous", "tls_ca_file_path", "project_id", "replication"),
        *("allow_bucket_creation", "allow_bucket_deletion", "allow_delayed_open", "background_writes"),
        *("connect_timeout", "request_timeout", "retry_limit_seconds", "buffer_size", "default_block_size"),
        *("enable_tls", "local_endpoint", "blob_storage_authority", "dfs_storage_authority", "use_mmap"),
    }
)
"""Options of a URI that hold no secret."""
HIDDEN_VALUE = "***"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


class AddressError(ValueError):
    """No store can be at such an address: one line that states the law and the offender."""


def parse_address(text: str) -> str:
    """A URI as it is, or the absolute path of a folder. AddressError for what is neither."""
    if "\0" in text:
        raise AddressError(f"a store's name must have no NUL, but got {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise AddressError(f"a store's name must be UTF-8, but got {text!r}") from None
    found = _SCHEME.match(text)
    if not found:
        return os.path.abspath(os.path.expanduser(text))
    scheme = found[1]
    if not text.startswith("//", found.end()):
        raise AddressError(
            f"a store is a folder or a URI with ://, but got '{text}'; write {scheme.lower()}://... for a URI, or "
            f"'./{text}' for a folder of that name"
        )
    if scheme not in SCHEMES:
        raise AddressError(f"a store's URI must begin with one of {', '.join(SCHEMES)}, but got {scheme}://...")
    return text


def show_address(address: str) -> str:
    """The address without user, password and any option but `PLAIN_OPTIONS`. A folder is shown whole."""
    if not is_uri(address):
        return address
    base, mark, options = address.partition("?")
    return f"{_without_user(base)}{mark}{'&'.join(map(_shown_option, options.split('&')))}"


def join_address(address: str, path: str) -> str:
    """The address of `path` in a store: options stay at the end."""
    base, mark, options = address.partition("?") if is_uri(address) else (address, "", "")
    return f"{base.rstrip('/')}/{path}{mark}{options}"


def is_uri(address: str) -> bool:
    """Whether it is a URI, and not a folder's path, in which any sign may stand."""
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", address))


def _without_user(base: str) -> str:
    """Without what stands before the last @, if that can be a user and a secret: where the @ belongs to the host, or
    what looks like the host is none, as a secret that is not percent-encoded may hold a slash."""
    scheme, _, rest = base.partition("://")
    host = rest.partition("/")[0]
    if "@" in host or ("@" in rest and not re.fullmatch(r"[^:]*(:\d*)?", host)):
        rest = rest.rpartition("@")[2]
    return f"{scheme}://{rest}"


def _shown_option(option: str) -> str:
    """`name=value` where it holds no secret, else without its value."""
    name, _, value = option.partition("=")
    if name.lower() in PLAIN_OPTIONS and "@" not in value and "%40" not in value:
        return option
    return f"{name}={HIDDEN_VALUE}" if value else option
