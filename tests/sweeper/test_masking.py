"""Addresses are shown without their secrets: whole, in a text, and where a library has taken them apart."""

import random
import re
from collections.abc import Iterator

import pytest

from sweeper import masking
from sweeper.errors import ClusterError, SpecError, StoreError, first_line
from sweeper.masking import masked, masked_url, remember


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    known = set(masking._known)
    masking._known.clear()
    yield
    masking._known.update(known)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://KEY:SECRET@bucket/x", "s3://bucket/x"),
        ("s3://KEY:SEC/RET@bucket/x", "s3://bucket/x"),
        ("s3://KEY:SEC?RET@bucket/x", "s3://bucket/x"),
        ("s3://KEY:SEC@RET@bucket/x", "s3://bucket/x"),
        ("s3://KEY:SECRET@bucket/x?region=r", "s3://bucket/x?region=r"),
        ("s3://bucket/a@b/x", "s3://bucket/a@b/x"),
        ("s3://host:9000/a@b", "s3://host:9000/a@b"),
        ("s3://b/x?scheme=http&endpoint_override=h:1", "s3://b/x?scheme=http&endpoint_override=h:1"),
        ("s3://b/x?secret_key=SECRET&region=r", "s3://b/x?secret_key=***&region=r"),
        ("s3://b/x?endpoint_override=KEY:SECRET@h", "s3://b/x?endpoint_override=***"),
        ("gs://b/x?anonymous", "gs://b/x?anonymous"),
        ("http://TOKEN@[::1]:5000/api", "http://[::1]:5000/api"),
        ("http://h/callback#access_token=SECRET", "http://h/callback#access_token=***"),
        ("/a?b=SECRET", "/a?b=SECRET"),
    ],
)
def test_only_secrets_are_hidden(uri: str, shown: str) -> None:
    assert masked_url(uri) == shown
    if "://" in uri:
        assert masked(f"no answer from '{uri}', again in 2 s") == f"no answer from '{shown}', again in 2 s"


def test_a_password_is_in_no_line_whatever_its_characters() -> None:
    draw = random.Random(0)
    passwords = ["".join(draw.choices("ABXYZ019/?@:#%=+~-", k=draw.randint(3, 16))) for _ in range(300)]
    for secret in (f"Q{password}Q" for password in passwords):
        address = f"http://sweeper:{secret}@tracker:5000/mlflow"
        remember(address)
        for line in (
            f"API request to {address}/api/2.0/get?experiment_name=grid failed (Caused by ...)",
            f"Invalid url: {address}",
            f"put-secret sweeper {secret}@x",
            f"('{address}', 3)",
        ):
            assert secret not in masked(line) and "experiment_name=***" not in masked(line), line


def test_what_a_library_has_taken_apart_is_hidden() -> None:
    remember("https://user:p%40ssword@host/x?access_token=T0KEN&page=2")
    line = "HTTPSConnectionPool(host='host'): Max retries exceeded with url: /x?access_token=T0KEN&page=2 for p@ssword"
    assert masked(line) == (
        "HTTPSConnectionPool(host='host'): Max retries exceeded with url: /x?access_token=***&page=2 for ***"
    )
    remember("user:hunter22@127.0.0.1:9")  # typed without its scheme
    assert masked("got unsupported URI 'user:hunter22@127.0.0.1:9'") == "got unsupported URI 'user:***@127.0.0.1:9'"


def test_ordinary_lines_are_left_alone() -> None:
    remember("/data/a:b@c")
    remember("s3://bucket/x?region=eu-central-1")
    for line in (
        "the first side must be NAME[:PRESET][,KEY=VALUE...][@STORE], but got 'grid:digits,nu=1@/data/a:b@c'",
        "store s3://bucket/x?region=eu-central-1: no rows; see https://example.org/a?page=2.",
        "no key 'tokens' (did you mean 'tau'?); there are: key=1, token=2",
    ):
        assert masked(line) == line.replace("page=2.", "page=***.")


@pytest.mark.parametrize("error", [SpecError, StoreError, ClusterError])
def test_no_error_of_ours_shows_a_secret(error: type[Exception]) -> None:
    raised = error("--track mlflow=http://me:SECRET@host:5000 must be given once, but got s3://KEY:SECRET@b/x twice")
    assert not re.search("SECRET|KEY", f"{raised} {raised!r}") and "mlflow=http://host:5000" in str(raised)
    assert first_line(OSError("\nno route to http://me:SECRET@host"), "") == "no route to http://host"
