"""What a step of GitHub Actions reads and writes: variables, outputs, the summary, annotations.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn

LONGEST_SUMMARY = 250_000  # characters; GitHub allows 1 MiB, and a character has up to 4 bytes
LONGEST_FENCE = 1100  # characters with its line breaks: a line of output can be one


def variable(name: str, default: str = "") -> str:
    """An environment variable without space around it; the default where it is empty."""
    return os.environ.get(name, "").strip() or default


def event() -> dict[str, Any]:
    """What started the workflow, such as a push or a pull request; empty where there is no file."""
    path = variable("GITHUB_EVENT_PATH")
    content = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    return content if isinstance(content, dict) else {}


def write_outputs(values: Mapping[str, object]) -> None:
    """Set outputs of the step; no value can end its own entry and begin another one."""
    end = f"end-{uuid.uuid4().hex}"
    _append("GITHUB_OUTPUT", "".join(f"{k}<<{end}\n{v}\n{end}\n" for k, v in values.items()))


def write_summary(text: str) -> None:
    """Add Markdown to the page of the run."""
    short = shortened(
        text, LONGEST_SUMMARY, "The text is too long for a summary; the files have it."
    )
    _append("GITHUB_STEP_SUMMARY", f"{short.rstrip()}\n\n")


def shortened(text: str, length: int, note: str) -> str:
    """Markdown of at most this length: its first whole lines, so that no row is cut, and a note."""
    if len(text) <= length:
        return text
    kept = text[: length - len(note) - LONGEST_FENCE].rpartition("\n")[0]
    fence = ""  # of the block that is open
    for line in kept.split("\n"):
        if not fence and (found := re.match("`{3,}", line)):
            fence = found[0]
        elif fence and line.strip("`") == "" and len(line) >= len(fence):
            fence = ""
    end = f"\n{fence}" if fence else ""
    return f"{kept}{end}\n\n{note}"


def annotate(kind: Literal["error", "warning", "notice"], text: str) -> None:
    """Show a sentence at the top of the page of the run."""
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    sys.stdout.write(f"::{kind} title=esbench::{escaped}\n")
    sys.stdout.flush()


def end_with_error(text: str) -> NoReturn:
    """Annotate and end the step with exit code 2, that of bad input."""
    annotate("error", text)
    raise SystemExit(2)


def _append(name: str, text: str) -> None:
    if path := variable(name):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
