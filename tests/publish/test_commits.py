"""A commit in a file of a stranger is a hash, or the file is refused."""

import json
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from command_line import Run
from fake_entries import fake_suite, write_board
from fake_trials import edit, write_scores

from esbench.core.errors import UsageError
from esbench.core.escape import printable
from esbench.core.json_text import SEAL, as_text, sealed
from esbench.core.settings import parse
from esbench.store.origin import COMMIT, Origin


@pytest.mark.parametrize(
    "commit", ["", "c" * 39, "c" * 40 + "++", "C" * 40, "\u0663" * 40, "c" * 40 + "\n"]
)
def test_a_commit_is_forty_digits_and_an_optional_sign(commit: str) -> None:
    for good in ("c" * 40, "0" * 40 + "+", None):
        assert parse(Origin, {"git_commit": good}, "file").git_commit == good
    with pytest.raises(UsageError, match="40 hexadecimal digits"):
        parse(Origin, {"git_commit": commit}, "file")
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(commit, Annotated[str, msgspec.Meta(pattern=COMMIT)])


def test_a_commit_that_is_no_hash_is_refused_by_every_reader(esbench: Run, tmp_path: Path) -> None:
    write_scores(tmp_path / "runs", [1.0, 2.0, 3.0])
    assert esbench("baseline", "runs", "--out", "b.json")[0] == 0
    assert esbench("check", "runs", "--baseline", "b.json", "--json", "checks/c.json")[0] == 0
    (entry,) = fake_suite("mujoco-mlp", seeds=3)[:1]
    write_board(tmp_path / "board", [entry])
    commit = "<script>\x1b"
    for name, *place in (
        ("b.json", "origins", 0, "git_commit"),
        (f"board/{entry.file_name}", "origins", 0, "git_commit"),
        ("checks/c.json", "commit"),
    ):
        change(tmp_path / name, commit, *place)
    edit(tmp_path / "runs", "trial.json", lambda content: content.update(git_commit=commit))
    for command in (
        "table runs",
        "check runs --baseline b.json",
        "history checks",
        "leaderboard board",
        f"verify board/{entry.file_name}",
    ):
        code, out, err = esbench(*command.split())
        assert (code, out) == (2, ""), command
        assert "commit" in err, command
        assert printable(err) == err, command


def change(path: Path, value: object, *place: str | int) -> None:
    """Change a value in a JSON file, whose digest then fits."""
    content = json.loads(path.read_text())
    is_sealed, at = content.pop(SEAL, None), content
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    path.write_text(as_text(sealed(content) if is_sealed else content))
