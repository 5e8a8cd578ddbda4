"""The same bits on every x86-64 processor with AVX2: variables that fix what libraries choose.

NumPy, OpenBLAS, torch, MKL and oneDNN hold several variants of their code and choose one by the
processor when they are loaded. Each variant rounds in its own way.
"""

from __future__ import annotations

from typing import Final

# Numerical libraries read these at import. Several threads per worker would compete for the cores
# and could change the order of a sum.
SINGLE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
