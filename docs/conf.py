"""How Sphinx builds the documentation of esbench."""

from __future__ import annotations

import sys
from pathlib import Path

import esbench

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))  # the extensions of this site

project = "esbench"
author = "the esbench contributors"
project_copyright = "the esbench contributors"
release = version = esbench.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "formulas",
    "reference_pages",
    "results_pages",
]
exclude_patterns = [
    "_build",
    "tutorials",
    "reference/equations",
    "reference/architectures",
    "results/parts",
]
nitpicky = False

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

napoleon_attr_annotations = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Names of types that would be shown as what they stand for.
TYPES = ("Matrix", "Rows", "Shapes", "State", "Table", "Vector", "npt.ArrayLike")
autodoc_type_aliases = {name: name for name in TYPES}
python_use_unqualified_type_names = True

copybutton_exclude = ".linenos, .gp, .go"

sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "capture_repr": ("_repr_html_",),
    "download_all_examples": False,
    "min_reported_time": 1e9,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
}

html_math_renderer = "svg"
html_theme = "furo"
html_title = "esbench"
html_static_path = ["_static", "../results/films", "../esbench/publish/html/sort.js"]
html_css_files = ["custom.css"]
html_js_files = [("sort.js", {"defer": "defer"})]
html_copy_source = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {
        "color-brand-primary": "#0b5cad",
        "color-brand-content": "#0b5cad",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7db7ff",
        "color-brand-content": "#7db7ff",
    },
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
