"""Cases of one law in one test. An item of pytest costs milliseconds in each process that collects it, which is more
than most cases take; a law with many cases is therefore one item that names every case that breaks it."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

Test = Callable[..., None]


def for_each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but all cases are one item. Every case runs, whichever fails.

    Each case has patches and a temporary folder of its own, and reads only its own output; all cases share the other
    fixtures. The error is that of the first case that fails, with a note that names all that do.
    """
    names, cases = (names,) if isinstance(names, str) else tuple(names), tuple(cases)
    assert cases, "a law without cases cannot fail"
    assert not any(isinstance(case, type(pytest.param())) for case in cases), "marks are of items, not of cases"

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failures: list[tuple[str, BaseException]] = []
            for index, case in enumerate(cases):
                values = dict(zip(names, case if len(names) > 1 else (case,), strict=True))
                try:
                    _run_alone(test, values, fixtures, str(index))
                except (Exception, pytest.fail.Exception) as error:
                    failures.append((", ".join(f"{name}={value!r}" for name, value in values.items()), error))
            if failures:
                failures[0][1].add_note("\n".join(["fails with:", *(case for case, _ in failures)]))
                raise failures[0][1]

        others = [parameter for name, parameter in signature.parameters.items() if name not in names]
        assert len(others) + len(names) == len(signature.parameters), f"{test.__name__} does not take all of {names}"
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate


def _run_alone(test: Test, values: dict[str, Any], fixtures: dict[str, Any], folder: str) -> None:
    own = dict(fixtures)
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / folder
        own["tmp_path"].mkdir()
    if "capsys" in own:
        own["capsys"].readouterr()
    with pytest.MonkeyPatch.context() as patches:
        if "monkeypatch" in own:
            own["monkeypatch"] = patches
        test(**values, **own)
