"""Says where pip keeps what it downloads, and the key under which GitHub stores it.

Reads: ESBENCH_ACTION, the folder of the action. Sets the outputs: folder, key.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
from pathlib import Path

from runner import variable, write_outputs


def main() -> None:
    """Set the outputs of the step."""
    where = subprocess.run(
        [sys.executable, "-m", "pip", "cache", "dir"], check=True, capture_output=True, text=True
    ).stdout.strip()
    pins = (Path(variable("ESBENCH_ACTION")) / "constraints.txt").read_bytes()
    system = f"{platform.system()}-{platform.machine()}-{platform.python_version()}"
    write_outputs(
        {"folder": where, "key": f"esbench-{system}-{hashlib.sha256(pins).hexdigest()[:16]}"}
    )


if __name__ == "__main__":
    main()
