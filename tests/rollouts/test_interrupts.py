import signal
from typing import Any

import pytest

from esbench.rollouts.interrupts import interrupts_delayed


def test_a_signal_that_arrives_while_handlers_change_leaves_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = signal.getsignal(signal.SIGINT)
    change = signal.signal

    def changed(number: Any, handler: Any) -> Any:
        found = change(number, handler)
        signal.raise_signal(signal.SIGINT)
        return found

    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patch, interrupts_delayed():
        patch.setattr(signal, "signal", changed)
    assert signal.getsignal(signal.SIGINT) is before

    monkeypatch.setattr(signal, "signal", changed)
    with pytest.raises(KeyboardInterrupt), interrupts_delayed():
        pass
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    done = []

    def work() -> None:
        with interrupts_delayed():
            signal.raise_signal(signal.SIGINT)
            done.append("all")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all"]
