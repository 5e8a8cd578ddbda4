"""The report's one file: contents to HTML, with its style and its script inside."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

from esbench.files import write_bytes
from esbench.reporting.html.contents import Contents, contents
from esbench.reporting.tables.render_table import TEXTS
from esbench.reporting.tables.summary import interval
from esbench.units import format_share

NAME: Final = "report.html"


def write_report(root: Path, out: Path | None = None, title: str | None = None) -> Path:
    """Write the report of an output folder; equal trials give equal bytes.

    Args:
        root: folder with trials; unfinished ones are shown as such.
        out: the file; by default ``root / "report.html"``.
        title: the heading; by default the folder's name.

    Returns:
        The file.

    Raises:
        UsageError: there is no trial, one is not readable, or the file cannot be written.
    """
    path = root / NAME if out is None else out
    write_bytes(path, render(contents(root, title)).encode(errors="xmlcharrefreplace"))
    return path


def render(report: Contents) -> str:
    """Return the page; whatever labels and messages contain, none of it is markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    from esbench import __version__

    page = Environment(
        loader=PackageLoader("esbench.reporting.html", "."),
        autoescape=True,
        undefined=StrictUndefined,
    ).get_template("page.html")
    assets = resources.files("esbench.reporting.html")
    return page.render(
        report=report,
        interval=interval,
        share=format_share,
        texts=TEXTS,
        version=__version__,
        style=Markup(assets.joinpath("page.css").read_text(encoding="utf-8")),
        script=Markup(assets.joinpath("page.js").read_text(encoding="utf-8")),
    )
