"""The tutorials as notebooks, as a reader downloads them from the built site."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

SITE = Path(os.environ.get("ESBENCH_SITE", ""))
NOTEBOOKS = sorted(SITE.glob("_downloads/*/*.ipynb")) if "ESBENCH_SITE" in os.environ else []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_downloaded_tutorial_runs_in_an_empty_folder(notebook: Path, tmp_path: Path) -> None:
    content = nbformat.read(notebook, as_version=4)
    # IPython draws figures, whatever the tests' own processes do.
    environment = {key: value for key, value in os.environ.items() if key != "MPLBACKEND"}
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(content, timeout=60, resources=place).execute(env=environment)
    outputs = [output for cell in content.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
