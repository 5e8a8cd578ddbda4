import contextlib
import signal
import sys
from pathlib import Path
from types import ModuleType

import pytest
from command_line import execute, working_in

from esbench import cli
from esbench.__main__ import program
from esbench.core.errors import UsageError


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("error", [None, UsageError("the disk is full")])
def test_an_interrupt_that_is_swallowed_or_replaced_is_the_end_of_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, error: Exception | None
) -> None:
    def command(**_: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        if error is not None:
            raise error

    monkeypatch.setattr(cli, "app", command)
    with working_in(tmp_path):
        assert execute("list") == 130
