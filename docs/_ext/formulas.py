"""Formulas as SVG in the page: no script, no network, no font of the reader's own."""

from __future__ import annotations

from xml.etree import ElementTree

import ziamath
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

SIZE = 16.0  # pixels per em in ziamath's units; the page scales by em
ziamath.config.svg2 = False  # paths, not symbols whose ids would repeat on a page


def svg(latex: str, *, inline: bool) -> str:
    """The formula as an ``svg`` element in the text's color, with its LaTeX as the label."""
    # latex2mathml takes \sim for an identifier, which has no space around it.
    shown = latex.replace(r"\sim", "∼")
    formula = ziamath.Latex(shown, size=SIZE, inline=inline, color="currentColor")
    width, height = formula.getsize()
    element = formula.svgxml()
    element.set("width", f"{(width + 2) / SIZE:.3f}em")
    element.set("height", f"{(height + 2) / SIZE:.3f}em")
    element.set("role", "img")
    element.set("aria-label", latex)
    if inline:
        element.set("style", f"vertical-align: {(formula.getyofst() - 1) / SIZE:.3f}em")
    return ElementTree.tostring(element, encoding="unicode")


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write an inline formula."""
    self.body.append(f'<span class="formula">{svg(node.astext(), inline=True)}</span>')
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own."""
    self.body.append(f'<div class="formula">{svg(node.astext(), inline=False)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("svg", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
