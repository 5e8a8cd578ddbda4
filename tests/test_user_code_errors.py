"""Errors of user code become printable text, and user code does not end the process."""

from pathlib import Path

import pytest
from command_line import Run, finished
from hostile_code import NAUGHTY, MuteError

from esbench.core.errors import (
    MOST_CHARACTERS,
    TrainingError,
    as_training_errors,
    error_text,
    message_of,
)
from esbench.core.escape import printable

ENDS = """
import threading, time
from esbench.core import process

process.PATIENCE = 0.1
threading.Thread(target=time.sleep, args=(30,)).start()
process.end_soon(5)
"""


def test_own_text_can_be_printed_and_stored() -> None:
    text = printable(f"{NAUGHTY}\ntwo\tlines: \N{GREEK SMALL LETTER ALPHA}")
    assert all(each.isprintable() or each == "\n" for each in text)
    assert text.encode().decode() == text
    for fact in ("\\udc80", "\\x1b[31m", "\\x00", "\\u202e", "\n", "\N{GREEK SMALL LETTER ALPHA}"):
        assert fact in text


def test_the_message_of_any_error_is_one_line() -> None:
    assert message_of(ValueError("a\n  b")) == "a b"
    assert len(message_of(ValueError("x" * 10**6))) == MOST_CHARACTERS
    assert error_text(MuteError()).startswith("MuteError: ")
    assert error_text(ValueError()) == "ValueError"
    assert error_text(SystemExit(0)) == "SystemExit: 0"


@pytest.mark.parametrize("error", [ConnectionError("gone"), ValueError("gone"), SystemExit("gone")])
def test_an_error_of_user_code_becomes_one_with_its_place(error: BaseException) -> None:
    with (
        pytest.raises(TrainingError, match="Error: gone .*errors.py, line|SystemExit: gone"),
        as_training_errors(),
    ):
        raise error


def test_a_thread_of_user_code_does_not_delay_the_end() -> None:
    code, out, err = finished("-c", ENDS)
    assert (code, out, err) == (5, "", "")


@pytest.mark.parametrize("way", ["sys_exit", "raise", "surrogate"])
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("eval --random-policy hostile_code:Reset-{}-v0 --episodes 1", 1),
        ("plan --env hostile_code:Close-{}-v0 --algorithm openai_es --workers 1", 1),
        ("status --env hostile_code:Plain-v0 --algorithm exits_{}:Class", 2),
    ],
)
def test_user_code_ends_no_command_without_a_sentence(
    esbench: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    expected: int,
    way: str,
) -> None:
    module = f"from hostile_code import WAYS\nWAYS[{way!r}]()\n"
    (tmp_path / f"exits_{way}.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    code, out, err = esbench(*command.format(way).split())
    assert (code, out, len(err.splitlines())) == (expected, "", 1)
    assert printable(err) == err
    assert "line " in err
