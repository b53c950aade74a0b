"""Addresses without their secrets, for every line that is printed, stored or raised.

A secret is the user and the password of a URL, and the value of each of its options that is not known to be harmless.
Errors of other libraries repeat such URLs, or parts of them, so the messages of all our errors pass through `masked`.
"""

import re
from urllib.parse import unquote

PLAIN_OPTIONS = frozenset(
    {
        *("scheme", "endpoint_override", "region", "anonymous", "tls_ca_file_path", "project_id", "replication"),
        *("allow_bucket_creation", "allow_bucket_deletion", "allow_delayed_open", "background_writes"),
        *("connect_timeout", "request_timeout", "retry_limit_seconds", "buffer_size", "default_block_size"),
        *("enable_tls", "local_endpoint", "blob_storage_authority", "dfs_storage_authority", "use_mmap"),
        *("experiment_name", "experiment_id", "run_id"),
    }
)
"""Options of URLs that hold no secret, so their values are shown: those of stores, and three of MLflow."""
SHORTEST_SECRET = 4
"""Fewest characters of a secret that is also masked outside of its URL. A shorter one would be found in other words."""
MASK = "***"

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*://"
_URL = re.compile(rf"{_SCHEME}\S+")
_URL_END = "'\"`)]}>,.;:"
"""Characters that end a sentence or a quotation rather than the URL before them."""
_HOST = re.compile(r"(\[[^\]@]*\]|[^:@]*)(:\d*)?")
_SECRET_OPTION = re.compile(
    r"([?&;#][^=&;?#\s]*(?:pass|pwd|secret|token|key|sig|credential|auth|sas|jwt)[^=&;?#\s]*=)([^&\s'\"]+)",
    re.IGNORECASE,
)
"""An option whose name says that it is a secret, also where the address has lost its scheme and host."""
_known: set[str] = set()
"""Secrets of the addresses that this process was given."""


def is_uri(address: str) -> bool:
    """Whether the address is a URI, as opposed to the path of a folder."""
    return bool(re.match(_SCHEME, address))


def masked_url(address: str) -> str:
    """Return a URL without the user, the password and the values of options not in `PLAIN_OPTIONS`; a folder unchanged.

    A password that is not percent-encoded may contain a slash or a question mark. So everything before the last @ is
    also removed if the part before the first slash is not a valid `host` or `host:port`.
    """
    if not is_uri(address):
        return address
    scheme, _, rest = address.partition("://")
    _, rest = _userinfo_and_rest(rest)
    base, question_mark, options = rest.partition("?")
    shown = f"{scheme}://{base}{question_mark}{'&'.join(map(_shown_option, options.split('&')))}"
    return _SECRET_OPTION.sub(rf"\1{MASK}", shown)


def masked(text: str) -> str:
    """Return a text with `masked_addresses`, without the secrets that `remember` was given."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return masked_addresses(text)


def masked_addresses(text: str) -> str:
    """Return a text in which each URL is a `masked_url`."""
    return _SECRET_OPTION.sub(rf"\1{MASK}", _URL.sub(_masked_match, text))


def has_secret(address: str) -> bool:
    """Whether a URL has a user, a password, or an option whose name says that it is a secret."""
    userinfo, rest = _userinfo_and_rest(address.partition("://")[2]) if is_uri(address) else ("", "")
    return bool(userinfo or _SECRET_OPTION.search(rest))


def remember(address: str) -> None:
    """Have `masked` remove the password of an address, and its options that are secrets, wherever they appear in a
    text: libraries take addresses apart. An address that lacks its scheme has a password, too: `user:password@host`."""
    if is_uri(address):
        userinfo, rest = _userinfo_and_rest(address.partition("://")[2])
        secrets = {userinfo.partition(":")[2] or userinfo, *(found[2] for found in _SECRET_OPTION.finditer(rest))}
    else:
        typed = re.match("[^/@:]+:([^/]+)@", address)
        secrets = {typed[1]} if typed else set()
    _known.update(form for secret in secrets for form in (secret, unquote(secret)) if len(form) >= SHORTEST_SECRET)


def _userinfo_and_rest(rest: str) -> tuple[str, str]:
    """Split what follows the scheme of a URL at the @ behind the password; the first part is empty without one."""
    base, _, options = rest.partition("?")
    host = re.split("[/#]", base, maxsplit=1)[0]
    if "@" not in rest or ("@" not in host and _HOST.fullmatch(host)):
        return "", rest
    in_base = "@" in base and "@" not in options.partition("=")[0]
    end = (base if in_base else rest).rindex("@")
    return rest[:end], rest[end + 1 :]


def _masked_match(match: re.Match[str]) -> str:
    url = match[0].rstrip(_URL_END)
    return masked_url(url) + match[0][len(url) :]


def _shown_option(option: str) -> str:
    name, _, value = option.partition("=")
    if name.lower() in PLAIN_OPTIONS and "@" not in value and "%40" not in value:
        return option
    return f"{name}={MASK}" if value else option
