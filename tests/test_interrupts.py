import signal
import sys
from types import ModuleType

import pytest

from esbench.__main__ import program
from esbench.core.process import interrupts_delayed


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    done = []

    def work() -> None:
        with interrupts_delayed():
            signal.raise_signal(signal.SIGINT)
            done.append("all")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all"]


def test_an_interrupt_while_the_command_line_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loading = ModuleType("esbench.cli")

    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    loading.__getattr__ = interrupted  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "esbench.cli", loading)
    with pytest.raises(SystemExit) as end:
        program()
    assert end.value.code == 130
    assert "interrupted" in capsys.readouterr().err
