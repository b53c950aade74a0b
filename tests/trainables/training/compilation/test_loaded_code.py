import importlib.util
import sys

import pytest

from trainables.training.compile_step import file_hash, is_unchanged, loaded_code


def test_the_code_of_a_step_includes_the_program_that_compiles_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.find_spec("trainables.training.compile_step")
    assert spec and spec.origin
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    code = loaded_code()
    assert code[spec.name] == file_hash(spec.origin) and is_unchanged(code)
    assert not is_unchanged({**code, spec.name: "another"})
