"""Leaves the installed esbench only the requirements of its plugin of pytest.

pip installs what any package requires that is in the environment, also one that was installed with
``--no-deps``. So where the code under test requires esbench, it would add PyTorch. Call it with the
path of ``gate-requirements.txt``, after the installation of esbench and before that of the code.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import distribution
from pathlib import Path

NAME = re.compile(r"[\w.-]+")


def names(requirements: str) -> set[str]:
    """The packages that a file of requirements names."""
    return {found[0].lower() for line in requirements.splitlines() if (found := NAME.match(line))}


def lighter(metadata: str, kept: set[str]) -> str:
    """Metadata of a package with these requirements only, and those of its extras."""
    head, empty, text = metadata.partition("\n\n")
    lines = [line for line in head.split("\n") if _stays(line, kept)]
    return "\n".join(lines) + empty + text


def _stays(line: str, kept: set[str]) -> bool:
    key, _, value = line.partition(": ")
    name = NAME.match(value)
    is_needed = name is not None and name[0].lower() in kept
    return key != "Requires-Dist" or is_needed or "extra ==" in value


def main() -> None:
    """Change the metadata of the esbench that this Python has."""
    kept = names(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for file in distribution("esbench-rl").files or []:
        if file.match("*.dist-info/METADATA"):
            path = Path(str(file.locate()))
            path.write_bytes(lighter(path.read_bytes().decode(), kept).encode())


if __name__ == "__main__":
    main()
