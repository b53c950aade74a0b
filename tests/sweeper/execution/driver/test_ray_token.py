import re
import stat
from pathlib import Path

import pytest

from sweeper.execution.session import make_token


def test_rays_token_is_created_once_and_closed_to_others(tmp_path: Path) -> None:
    token = tmp_path / ".ray/auth_token"
    make_token(tmp_path, {})
    content = token.read_text()
    assert re.fullmatch("[0-9a-f]{64}", content) and stat.S_IMODE(token.stat().st_mode) == 0o600
    assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700 and list(token.parent.iterdir()) == [token]
    token.chmod(0o644)  # as Ray leaves one that it makes itself
    make_token(tmp_path, {})
    assert token.read_text() == content and stat.S_IMODE(token.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"])
def test_a_token_in_another_place_is_used_as_it_is(name: str, tmp_path: Path) -> None:
    make_token(tmp_path, {name: "x"})
    assert list(tmp_path.iterdir()) == []
