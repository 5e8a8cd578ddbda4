"""What is special to Linux is in one module, and esbench works where it is missing."""

import os
import re
import sys
from pathlib import Path

from command_line import finished

import esbench

SPECIAL = re.compile(r"/proc/|sched_\w+|pidfd|prctl|sys\.platform|platform\.system|/sys/fs|epoll")

# Python runs a file of this name at its start, here also in the processes of workers.
WITHOUT = """
import builtins, io, os, select, sys, sysconfig

sysconfig.get_config_vars()  # how this Python was built
sys.platform = "darwin"
for name in ("sched_getaffinity", "sched_setaffinity", "pidfd_open", "memfd_create", "eventfd"):
    vars(os).pop(name, None)
vars(select).pop("epoll", None)
opened = io.open

def without(file, *args, **kwargs):
    if str(file).startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "No such file or directory", str(file))
    return opened(file, *args, **kwargs)

builtins.open = io.open = without
"""
SCRIPT = """
import os, sys
from esbench.core.linux import cpu_info, is_linux
assert not (is_linux() or cpu_info("flags") or hasattr(os, "sched_getaffinity"))
import esbench
if __name__ == "__main__":
    grid = {"environments": ["CartPole-v1", "Acrobot-v1"], "algorithms": ["snes"],
            "seeds": [0], "evaluation": {"episodes": 2}}
    assert len(esbench.plan(grid, env_steps=600, workers=2).costs) == 2
    frame = esbench.run(grid, env_steps=600, workers=2, out="out", quiet=True)
    assert list(frame["status"]) == ["done", "done"], frame
"""


def test_one_module_names_what_only_linux_has() -> None:
    package = Path(str(esbench.__file__)).parent
    named = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if SPECIAL.search(path.read_text(encoding="utf-8"))
    }
    assert named == {"core/linux.py"}


def test_plans_and_training_need_nothing_of_linux(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    (tmp_path / "train.py").write_text(SCRIPT)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    code, _, err = finished("train.py", cwd=tmp_path, env={"PYTHONPATH": path})
    assert code == 0, err
