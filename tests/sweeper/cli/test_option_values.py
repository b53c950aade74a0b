import pytest

from sweeper.cli.parser import LARGEST_INTEGER, amount, auto, fraction, store_retries, whole
from sweeper.errors import SpecError
from sweeper.storage.retry import LONG_RETRIES, RetryPolicy


def test_numbers_within_their_range() -> None:
    assert whole("--n", 3, "3") == 3 and whole("--n", 0, str(LARGEST_INTEGER)) == LARGEST_INTEGER
    assert auto("auto") is None and auto("8") == 8
    assert fraction("auto") is None and fraction("0.25") == 0.25
    assert amount("--s", "0") == 0.0 and amount("--s", "1e9", positive=True) == 1e9


@pytest.mark.parametrize("text", ["2", "-1", "1.5", "x", "", "9" * 5000, str(LARGEST_INTEGER + 1)])
def test_a_whole_number_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--n must be "):
        whole("--n", 3, text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "2e9", "x"])
def test_an_amount_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--s"):
        amount("--s", text, positive=True)


@pytest.mark.parametrize("text", ["0", "0.00001", "1.5", "nan", "x"])
def test_a_fraction_of_a_gpu_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="gpu-fraction"):
        fraction(text)


def test_the_wait_for_a_store_is_a_minute_unless_the_environment_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWEEPER_PATIENCE", raising=False)
    assert store_retries() == LONG_RETRIES
    monkeypatch.setenv("SWEEPER_PATIENCE", "7.5")
    assert store_retries() == RetryPolicy(7.5)
