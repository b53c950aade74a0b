from collections.abc import Mapping
from pathlib import Path

import pytest

from cluster.access import address, check_token, is_unencrypted
from sweeper.errors import ClusterError


@pytest.mark.parametrize(
    ("requested", "environment", "expected"),
    [
        (None, {}, "http://127.0.0.1:8265"),
        ("https://ray.example.org:443/", {}, "https://ray.example.org:443"),
        ("http://[::1]:8265", {}, "http://[::1]:8265"),
        (None, {"RAY_ADDRESS": "http://head:8265"}, "http://head:8265"),
        (None, {"RAY_ADDRESS": "http://a:1", "RAY_API_SERVER_ADDRESS": "http://b:2"}, "http://b:2"),
        ("http://c:3", {"RAY_ADDRESS": "http://a:1", "RAY_API_SERVER_ADDRESS": "http://b:2"}, "http://c:3"),
    ],
)
def test_a_requested_address_precedes_rays_variables(
    requested: str | None, environment: Mapping[str, str], expected: str
) -> None:
    assert address(requested, environment) == expected


@pytest.mark.parametrize(
    "text",
    ["", "head:8265", "head", "auto", "ray://head:10001", "http://head", "http://:8265", "http://head:port", "ftp://h:1",
     "http://head:99999", "http://user:secret@head:8265", "http://head:8265?x=1"],
)  # fmt: skip
def test_an_address_that_is_not_a_dashboards_is_refused(text: str) -> None:
    with pytest.raises(
        ClusterError, match="must be the URL of the cluster's dashboard, http://host:port or"
    ) as refused:
        address(text, {})
    assert str(refused.value).startswith("--address ") and "\n" not in str(refused.value)


def test_a_wrong_address_in_a_variable_is_refused_by_the_variables_name() -> None:
    with pytest.raises(ClusterError, match=r"^RAY_ADDRESS must be the URL .*http://.*, but got '10\.0\.0\.1:6379'$"):
        address(None, {"RAY_ADDRESS": "10.0.0.1:6379"})


def test_a_token_may_be_in_the_environment_in_a_named_file_or_in_rays_own(tmp_path: Path) -> None:
    check_token({"RAY_AUTH_TOKEN": "abc"}, tmp_path)
    (named := tmp_path / "token").write_text("abc\n")
    check_token({"RAY_AUTH_TOKEN_PATH": str(named)}, tmp_path)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("abc")
    check_token({}, tmp_path)


def test_a_missing_token_is_an_error_that_names_the_three_places_for_it(tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as refused:
        check_token({}, tmp_path)
    assert str(refused.value) == (
        f"a cluster requires a token, but RAY_AUTH_TOKEN is not set and {tmp_path}/.ray/auth_token cannot be "
        "read: No such file or directory; put the cluster's token there, name its file in RAY_AUTH_TOKEN_PATH, or "
        "set RAY_AUTH_MODE=disabled for a cluster without authentication"
    )


def test_a_named_file_precedes_rays_own_even_if_it_is_bad(tmp_path: Path) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("abc")
    (empty := tmp_path / "empty").write_text("\n")
    with pytest.raises(ClusterError, match="empty is empty; put"):
        check_token({"RAY_AUTH_TOKEN_PATH": str(empty)}, tmp_path)
    with pytest.raises(ClusterError, match="cannot be read: Is a directory"):
        check_token({"RAY_AUTH_TOKEN_PATH": str(tmp_path)}, tmp_path)
    (broken := tmp_path / "broken").write_bytes(b"\xff\xfe")
    with pytest.raises(ClusterError, match="cannot be read: 'utf-8' codec"):
        check_token({"RAY_AUTH_TOKEN_PATH": str(broken)}, tmp_path)


def test_no_token_is_required_if_authentication_is_off(tmp_path: Path) -> None:
    check_token({"RAY_AUTH_MODE": "disabled"}, tmp_path)
    with pytest.raises(ClusterError):
        check_token({"RAY_AUTH_MODE": "TOKEN"}, tmp_path)


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("http://127.0.0.1:8265", False),
        ("http://[::1]:8265", False),
        ("http://localhost:8265", False),
        ("https://head:443", False),
        ("http://10.0.0.7:8265", True),
        ("http://localhost.example.org:8265", True),
    ],
)
def test_a_token_is_encrypted_by_tls_or_stays_on_this_machine(url: str, clear: bool) -> None:
    assert is_unencrypted(url) == clear
