"""The types hold. A test, so that it runs beside the others: alone it would keep a core idle."""

import pytest
from checkout import ROOT
from command_line import finished


def test_mypy_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code, found, _ = finished("-m", "mypy")
    assert code == 0, found
