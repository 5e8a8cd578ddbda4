"""Programs that some tests need besides Python's packages: a browser, a TeX, an OpenGL."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def require(present: bool, what: str) -> None:
    """Skip a test where a program is missing; fail it where ESBENCH_TEST_PROGRAMS is "required"."""
    if present:
        return
    if os.environ.get("ESBENCH_TEST_PROGRAMS") == "required":
        pytest.fail(f"{what} is not installed here")
    pytest.skip(f"{what} is not installed here")


@contextmanager
def chromium(*arguments: str) -> Iterator[Any]:
    """A Chromium without a screen, that of Playwright or one of the system."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        found = own if Path(own).exists() else next(filter(None, map(shutil.which, BROWSERS)), "")
        require(bool(found), f"a browser ({', '.join(BROWSERS)})")
        browser = playwright.chromium.launch(executable_path=found, args=[*arguments])
        yield browser
        browser.close()


def compiled(text: str, folder: Path, runs: int = 1) -> str:
    """Compile a document with a real TeX, stopping at the first error; return its last log."""
    find = ["kpsewhich", "pdftex.map", "booktabs.sty", "longtable.sty"]
    has_tex = shutil.which(find[0]) and not subprocess.run(find, capture_output=True).returncode
    require(bool(has_tex), "a TeX (pdflatex with booktabs)")
    packages = re.findall(r"^% (\\usepackage.*)$", text, re.MULTILINE)
    parts = [r"\documentclass{article}", *packages, r"\begin{document}", "Before.", text]
    (folder / "a.tex").write_text("\n".join([*parts, r"\end{document}"]), encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "a.tex"]
    for _ in range(runs):  # references are known in the second one
        subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return (folder / "a.log").read_text(encoding="utf-8", errors="replace")
