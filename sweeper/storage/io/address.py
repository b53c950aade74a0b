"""The address of a store, a folder or a URI `scheme://...`, parsed as typed."""

import os
import re

from sweeper.masking import is_uri, masked_url

SCHEMES = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""URI schemes that pyarrow opens."""
_SCHEME = r"([A-Za-z][A-Za-z0-9+.-]*):"


class AddressError(ValueError):
    """The address cannot be that of a store. The message is one line."""


def parse_address(text: str) -> str:
    """Return a URI unchanged, or a folder as an absolute path. Raises AddressError for anything else."""
    if "\0" in text:
        raise AddressError(f"a store's name must not contain NUL, but got {masked_url(text)!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise AddressError(f"a store's name must be valid UTF-8, but got {masked_url(text)!r}") from None
    match = re.match(_SCHEME, text)
    if not match:
        return os.path.abspath(os.path.expanduser(text))
    scheme = match[1]
    if not text.startswith("//", match.end()):
        shown = f"{scheme}:{text[match.end() :].rpartition('@')[2]}"  # without the user and the password
        raise AddressError(
            f"a store must be a folder or a URI with ://, but got '{shown}'; write {scheme.lower()}://... for a URI, "
            f"or './{shown}' for a folder of that name"
        )
    if scheme not in SCHEMES:
        raise AddressError(f"a store's URI must begin with one of {', '.join(SCHEMES)}, but got {scheme}://...")
    return text


def join_address(address: str, path: str) -> str:
    """Return the address of `path` in the store. The options of a URI stay at the end."""
    base, question_mark, options = address.partition("?") if is_uri(address) else (address, "", "")
    return f"{base.rstrip('/')}/{path}{question_mark}{options}"
