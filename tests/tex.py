"""LaTeX compiled by a real TeX."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from programs import require


def compiled(text: str, folder: Path, *options: str) -> str:
    """Compile a document with a real TeX, stopping at the first error; return its log."""
    require(_has_tex(), "a TeX (pdflatex with booktabs and graphicx)")
    packages = re.findall(r"^% (\\usepackage.*)$", text, re.MULTILINE)
    parts = [r"\documentclass{article}", *options, *packages, r"\begin{document}", "Before."]
    document = "\n".join([*parts, text, r"\end{document}"])
    (folder / "a.tex").write_text(document, encoding="utf-8")
    subprocess.run(
        ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "a.tex"],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    return (folder / "a.log").read_text(encoding="utf-8", errors="replace")


def _has_tex() -> bool:
    program, files = shutil.which("kpsewhich"), ("pdftex.map", "booktabs.sty", "graphicx.sty")
    if program is None:
        return False
    return subprocess.run([program, *files], capture_output=True, check=False).returncode == 0
