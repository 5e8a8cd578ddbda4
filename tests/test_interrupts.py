import os
import signal
import sys
import time
from types import ModuleType
from typing import Any

import pytest

from esbench.__main__ import program
from esbench.core.process import interrupts_delayed


def test_a_signal_that_arrives_while_handlers_change_leaves_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change = signal.signal

    def ended(number: int, frame: object) -> None:
        raise SystemExit(number)

    def changed(number: Any, handler: Any) -> Any:
        found = change(number, handler)
        os.kill(os.getpid(), signal.SIGTERM)  # any thread of the process may receive it
        time.sleep(0.05)
        return found

    default = change(signal.SIGTERM, ended)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        monkeypatch.setattr(signal, "signal", changed)
        with pytest.raises(SystemExit), interrupts_delayed():
            pass
        found = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    finally:
        change(signal.SIGTERM, default)
        change(signal.SIGINT, interrupt)
    assert found == [interrupt, ended]


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
