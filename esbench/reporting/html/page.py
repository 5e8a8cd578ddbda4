"""The one file of the report: template, style, script and Plotly's JavaScript."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Final

from esbench.files import write_bytes
from esbench.reporting.html.contents import ReportContents, report_contents

NAME: Final = "report.html"


def write_report(root: Path, out: Path | None = None, title: str | None = None) -> Path:
    """Write the report of an output folder; equal trials give equal bytes.

    Args:
        root: folder with trials; unfinished ones are included.
        out: the file; by default ``root / "report.html"``.
        title: the heading; by default the folder's name.

    Returns:
        The path of the file.

    Raises:
        UsageError: there is no trial, one is not readable, or the file cannot be written.
    """
    path = root / NAME if out is None else out
    page = render(report_contents(root, title))
    write_bytes(path, page.encode(errors="xmlcharrefreplace"))
    return path


def render(report: ReportContents) -> str:
    """Render the page; labels and messages are escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=PackageLoader("esbench.reporting.html", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_function"] = json.dumps
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template("page.html").render(
        report=report, version=version("esbench"), plotly=Markup(get_plotlyjs())
    )
