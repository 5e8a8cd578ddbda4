from __future__ import annotations

import copy
from pathlib import Path

import pytest

from esbench.core.errors import UsageError
from esbench.integrations.library import LazyModule


def test_a_module_is_imported_when_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lazily.py").write_text("open('imported', 'w').close()\nANSWER = 42")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    module = copy.copy(LazyModule("lazily"))
    assert not (tmp_path / "imported").exists()
    assert module.ANSWER == 42
    with pytest.raises(AttributeError, match="QUESTION"):
        assert module.QUESTION


def test_a_broken_library_or_another_version_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_a_library.py").write_text("raise RuntimeError('no such driver')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"half_a_library cannot be imported \(RuntimeError: no"):
        assert LazyModule("half_a_library").anything
    with pytest.raises(UsageError, match=r"json\.other cannot be imported \(ModuleNotFoundError"):
        assert LazyModule("json.other").anything
