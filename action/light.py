"""Leaves the installed esbench only the requirements of its plugin of pytest.

pip installs what any package requires that is in the environment, also one that was installed with
``--no-deps``. So where the code under test requires esbench, it would add PyTorch. Call it with the
path of ``gate-requirements.txt``, after the installation of esbench and before that of the code.
"""

from __future__ import annotations

import sys
from importlib.metadata import distribution
from pathlib import Path


def lighter(metadata: str, needed: list[str]) -> str:
    """Metadata of a package that needs only these requirements, and those of its extras."""
    head, empty, text = metadata.partition("\n\n")
    lines = [
        line
        for line in head.split("\n")
        if not line.startswith("Requires-Dist:") or "extra ==" in line
    ]
    return "\n".join([*lines, *(f"Requires-Dist: {each}" for each in needed)]) + empty + text


def main() -> None:
    """Change the metadata of the esbench that this Python has."""
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    needed = [line for line in lines if line and not line.startswith("#")]
    for file in distribution("esbench-rl").files or []:
        if file.match("*.dist-info/METADATA"):
            path = Path(str(file.locate()))
            path.write_bytes(lighter(path.read_bytes().decode(), needed).encode())


if __name__ == "__main__":
    main()
