"""The address of a store, a folder or a URI `scheme://...`: parsed as typed, and shown without secrets."""

import os
import re

SCHEMES = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""URI schemes that pyarrow opens."""
PLAIN_OPTIONS = frozenset(
    {
        *("scheme", "endpoint_override", "region", "anonymous", "tls_ca_file_path", "project_id", "replication"),
        *("allow_bucket_creation", "allow_bucket_deletion", "allow_delayed_open", "background_writes"),
        *("connect_timeout", "request_timeout", "retry_limit_seconds", "buffer_size", "default_block_size"),
        *("enable_tls", "local_endpoint", "blob_storage_authority", "dfs_storage_authority", "use_mmap"),
    }
)
"""URI options that hold no secret, so their values are shown."""
_SCHEME = r"([A-Za-z][A-Za-z0-9+.-]*):"


class AddressError(ValueError):
    """The address cannot be that of a store. The message is one line."""


def parse_address(text: str) -> str:
    """Return a URI unchanged, or a folder as an absolute path. Raises AddressError for anything else."""
    if "\0" in text:
        raise AddressError(f"a store's name must not contain NUL, but got {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise AddressError(f"a store's name must be valid UTF-8, but got {text!r}") from None
    match = re.match(_SCHEME, text)
    if not match:
        return os.path.abspath(os.path.expanduser(text))
    scheme = match[1]
    if not text.startswith("//", match.end()):
        raise AddressError(
            f"a store must be a folder or a URI with ://, but got '{text}'; write {scheme.lower()}://... for a URI, or "
            f"'./{text}' for a folder of that name"
        )
    if scheme not in SCHEMES:
        raise AddressError(f"a store's URI must begin with one of {', '.join(SCHEMES)}, but got {scheme}://...")
    return text


def without_secrets(address: str) -> str:
    """Return a URI without the user, the password and the values of options not in `PLAIN_OPTIONS`; a folder unchanged.

    A password that is not percent-encoded may contain a slash. So everything before the last @ is also removed if the
    part before the first slash is not a valid `host` or `host:port`.
    """
    if not is_uri(address):
        return address
    base, question_mark, options = address.partition("?")
    scheme, _, rest = base.partition("://")
    host = rest.partition("/")[0]
    if "@" in host or ("@" in rest and not re.fullmatch(r"[^:]*(:\d*)?", host)):
        rest = rest.rpartition("@")[2]
    return f"{scheme}://{rest}{question_mark}{'&'.join(map(_shown_option, options.split('&')))}"


def join_address(address: str, path: str) -> str:
    """Return the address of `path` in the store. The options of a URI stay at the end."""
    base, question_mark, options = address.partition("?") if is_uri(address) else (address, "", "")
    return f"{base.rstrip('/')}/{path}{question_mark}{options}"


def is_uri(address: str) -> bool:
    """Whether the address is a URI, as opposed to the path of a folder."""
    return bool(re.match(f"{_SCHEME}//", address))


def _shown_option(option: str) -> str:
    name, _, value = option.partition("=")
    if name.lower() in PLAIN_OPTIONS and "@" not in value and "%40" not in value:
        return option
    return f"{name}=***" if value else option
