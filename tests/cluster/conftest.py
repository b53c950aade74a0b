from pathlib import Path

import pytest

from cluster import jobs, submit
from cluster.jobs import Jobs
from tests.cluster.fake_client import FakeClient, details

ROOT = Path(__file__).parents[2]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeClient:
    """A fake cluster whose jobs succeed. The process has a token and runs in the code's folder."""
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "abc")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.01)
    fake = FakeClient(details("RUNNING"), details("SUCCEEDED", 0), logs=[["trained\n"]])
    monkeypatch.setattr(submit, "connect", lambda address: Jobs(address, fake))
    return fake


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    return ["anomaly_grid", "--preset", "digits", "--store", str(tmp_path), "--set", "nu=0.5"]
