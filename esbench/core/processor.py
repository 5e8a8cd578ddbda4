"""The same bits on every x86-64-v3 processor, which is one with AVX2 and FMA.

NumPy, OpenBLAS, torch, MKL and oneDNN hold several variants of their code, which round in different
ways, and choose one by the processor when they are loaded. Environment variables fix the choice.
``import esbench`` sets them, for this process if NumPy is not loaded yet, and for those that it
starts. With ``ESBENCH_NATIVE=1`` and on other processors, such as ARM, the libraries choose.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from esbench.core.linux import cpu_info

BASELINE: Final = "x86-64-v3"
# Numerical libraries read these at import. Several threads per worker would compete for the cores
# and could change the order of a sum.
SINGLE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
VARIANTS: Final = {
    "OPENBLAS_CORETYPE": "Haswell",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",  # its other variants depend on the vendor
}
NEEDED: Final = frozenset({"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
NATIVE: Final = "ESBENCH_NATIVE"  # faster networks in torch, and bits of this processor
BEYOND: Final = "X86_V4 AVX512_ICL AVX512_SPR"  # NumPy warns of names that it does not know
BEYOND_BEFORE_2_4: Final = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"


def fix_variants() -> None:
    """Set the variables, unless the user wants none or the processor lacks the instructions."""
    if not os.environ.get(NATIVE) and {*cpu_info("flags").split()} >= NEEDED:
        os.environ.update(VARIANTS)
        os.environ["NPY_DISABLE_CPU_FEATURES"] = BEYOND_BEFORE_2_4 if _old_numpy() else BEYOND
        os.environ.pop("NPY_ENABLE_CPU_FEATURES", None)  # NumPy refuses both


def _old_numpy() -> bool:
    """Whether NumPy, which may not be loaded yet, is older than 2.4."""
    for folder in sys.path:
        with contextlib.suppress(OSError):
            text = Path(folder, "numpy", "version.py").read_text(encoding="utf-8")
            found = re.search(r'^version = "(\d+)\.(\d+)', text, re.MULTILINE)
            return found is not None and (int(found[1]), int(found[2])) < (2, 4)
    return False


@functools.cache
def arithmetic() -> dict[str, str]:
    """The baseline, and digests of what the libraries compute here, for ``trial.json``.

    Empty if the processor may enter the bits: the variants are not fixed, or NumPy was loaded with
    others before esbench.
    """
    import numpy as np

    configuration: Any = np.show_config(mode="dicts")
    found = " ".join(configuration["SIMD Extensions"].get("found", ()))
    is_fixed = all(os.environ.get(name) == value for name, value in VARIANTS.items())
    if not is_fixed or not re.search("AVX2|X86_V3", found) or re.search("AVX512|X86_V4", found):
        return {}
    points = np.linspace(-3, 3, 400)
    scalars = (math.exp, math.sin, math.cos, math.tan, math.atan, math.sinh, math.expm1)
    arrays = (np.exp, np.tanh, np.sin, np.cos, np.expm1, np.arctan, np.sum, np.cumsum)
    kinds: list[Any] = [points.astype(kind) for kind in (np.float32, np.float64)]
    # So small that one thread computes them, and longer than a block of the library.
    products = [np.outer(x[:5], x) @ np.outer(x, x[:7]) for x in kinds]
    products += [np.outer(x[:60], x[:60]) @ x[:60] for x in kinds]
    return {
        "processor": BASELINE,
        "libm": _digest([function(x) for x in points.tolist()] for function in scalars),
        "NumPy": _digest(function(x) for function in arrays for x in kinds),
        "BLAS": _digest([*products, *np.linalg.eigh(points.reshape(20, 20))]),
    }


def _digest(values: Iterable[Any]) -> str:
    from esbench.core.arrays import float_digest

    return float_digest(*values)[:8]


@functools.cache
def warn_if_not_fixed() -> None:
    """Warn once if NumPy was loaded before the variants were fixed, and with others."""
    if os.environ.get("OPENBLAS_CORETYPE") == VARIANTS["OPENBLAS_CORETYPE"] and not arithmetic():
        warnings.warn(
            "NumPy was imported before esbench, with instructions that other processors lack, so "
            "the bits of this process are those of this type of processor; expected "
            "'import esbench' before NumPy and what imports it, such as torch or Gymnasium",
            RuntimeWarning,
            stacklevel=2,
        )
