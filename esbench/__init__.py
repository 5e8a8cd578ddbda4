"""esbench: the benchmark suite for evolution strategies in reinforcement learning.

The public names are listed in ``__init__.pyi`` and imported when they are first used.
"""

import lazy_loader

from esbench.core import import_hooks, processor

__version__ = "0.3.0"

processor.fix_variants()
import_hooks.install()
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
