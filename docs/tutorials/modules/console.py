"""Runs a command in a tutorial and shows it with its output, as a terminal does."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

WIDTH = 88


def run(command: str, folder: Path | str = ".") -> int:
    """Run ``command`` in ``folder``; print it and its output, and return its exit code."""
    words = shlex.split(command)
    script = Path(sys.executable).with_name(words[0])
    words[:1] = [str(script)] if script.exists() else [sys.executable, "-m", words[0]]
    plain = {"COLUMNS": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        words, cwd=folder, env=os.environ | plain, capture_output=True, text=True, check=False
    )
    shown = f"$ {command}\n{done.stdout}{done.stderr}".replace(str(folder), ".")
    for line in shown.splitlines():
        is_sentence = len(line) > WIDTH and "  " not in line  # a table has wide gaps
        print(textwrap.fill(line, WIDTH, subsequent_indent="  ") if is_sentence else line)
    return done.returncode
