from pathlib import Path

import pytest

from cluster.command import parse
from sweeper.cli import arguments as command
from sweeper.spec import SpecError


def test_what_is_not_ours_is_sweeper_runs_in_its_order() -> None:
    words = ["anomaly_grid", "--preset", "digits", "--store", "s3://b/r", "--set", "nu=-1", "--axis", "beta=0,1"]
    asked = parse([*words[:3], "--address", "http://h:1", *words[3:], "--working-dir", "/code", "--no-wait"])
    assert list(asked.words) == words
    assert (asked.address, asked.working_dir, asked.wait) == ("http://h:1", Path("/code"), False)
    assert (asked.stop, asked.logs) == (None, None)
    assert command.parse(asked.words).store == "s3://b/r"


def test_a_sweep_is_continued_with_the_words_it_had_but_not_afresh() -> None:
    asked = parse(["grid", "--fresh", "--store", "/s", "--address", "http://h:1", "--no-wait"])
    assert asked.again == ("grid", "--store", "/s", "--address", "http://h:1")
    assert "--fresh" in asked.words


def test_a_job_is_named_to_stop_or_to_follow() -> None:
    assert parse(["--stop", "a-1"]).stop == "a-1"
    assert parse(["--logs", "a-1", "--address", "http://h:1"]).logs == "a-1"


@pytest.mark.parametrize(
    ("words", "law"),
    [
        (["--stop", "a-1", "grid"], "--stop ID and --logs ID can be combined with --address only"),
        (["--stop", "a-1", "--logs", "a-1"], "--stop ID and --logs ID can be combined with --address only"),
        (["--logs", "a-1", "--no-wait"], "--stop ID and --logs ID can be combined with --address only"),
        (["--stop", ""], "--stop and --logs must name a job, but got ''"),
        (["--stop"], "argument --stop: expected one argument; --help shows all options"),
    ],
)
def test_words_that_make_no_request_are_refused(words: list[str], law: str) -> None:
    with pytest.raises(SpecError, match=law) as refused:
        parse(words)
    assert "\n" not in str(refused.value)


def test_our_options_are_not_abbreviated() -> None:
    assert parse(["grid", "--log", "x", "--addr", "y"]).words == ("grid", "--log", "x", "--addr", "y")
