"""esbench: the benchmark suite for evolution strategies in reinforcement learning.

The public names are listed in ``__init__.pyi`` and imported when they are first used.
"""

import importlib
import sys

import lazy_loader

from esbench.core import moved

__version__ = "0.3.0"

moved.install()
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

if "gymnasium" in sys.modules:  # and so for gymnasium.make("esbench:esbench/Pong-v5")
    importlib.import_module("esbench.environments.registration")
