"""The variants that numerical libraries choose by the processor are those of one baseline."""

import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from command_line import finished

from esbench.core import processor
from esbench.core.linux import cpu_info

pytestmark = pytest.mark.skipif(
    not {*cpu_info("flags").split()} >= processor.NEEDED, reason="needs x86-64-v3"
)
DISABLED = "NPY_DISABLE_CPU_FEATURES"
# What libraries would choose on other processors, or a user has set. The second ends a process
# without AVX-512 unless esbench replaces it.
MASKS: dict[str, dict[str, str]] = {
    "as it is": {},
    "without AVX, another cache": {
        DISABLED: f"{processor.BEYOND} X86_V3",
        "OPENBLAS_CORETYPE": "Nehalem",
        "OPENBLAS_L2_SIZE": "2048",
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "AUTO",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-ERMS:glibc.cpu.x86_data_cache_size=65536",
    },
    "AVX-512": {
        "NPY_ENABLE_CPU_FEATURES": "X86_V3",
        "OPENBLAS_CORETYPE": "SkylakeX",
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_CBWR": "AVX512",
    },
}
ARITHMETIC = """
from esbench.core.processor import arithmetic, warn_if_not_fixed
import json
warn_if_not_fixed()
print(json.dumps(arithmetic()))
"""


def printed(*arguments: str, **mask: str) -> Any:
    """Return the JSON that Python prints in a process that starts with a mask."""
    unset = dict.fromkeys([*processor.VARIANTS, DISABLED], "")
    code, out, err = finished(*arguments, env={**unset, **mask})
    assert code == 0, err
    return json.loads(out.splitlines()[-1])


@cache
def trained(name: str) -> Any:
    return printed(str(Path(__file__).with_name("every_kind.py")), **MASKS[name])


@pytest.mark.parametrize("name", [*MASKS][1:])
def test_every_kind_of_trial_has_the_same_bits_on_every_type_of_processor(name: str) -> None:
    assert trained(name) == trained("as it is")


def test_what_no_variable_fixes_is_recorded() -> None:
    before = printed("-c", ARITHMETIC)
    after = printed("-c", ARITHMETIC, GLIBC_TUNABLES="glibc.cpu.hwcaps=-AVX2,-FMA")
    assert [key for key in before if before[key] != after[key]] == ["libm", "NumPy"]


def test_a_process_that_loaded_numpy_with_other_instructions_warns_and_records_none() -> None:
    script = f"import numpy{ARITHMETIC}"
    older = {DISABLED: processor.BEYOND, **processor.VARIANTS}  # what one without AVX-512 chooses
    assert printed("-c", script, **older) == printed("-c", ARITHMETIC)
    mask = {DISABLED: "X86_V3"}
    assert printed("-W", "ignore", "-c", script, **mask) == {}
    code, _, err = finished("-W", "error", "-c", script, env=mask)
    assert (code, "'import esbench' before NumPy" in err) == (1, True)


def test_a_user_can_have_the_bits_and_the_speed_of_the_processor() -> None:
    assert printed("-c", ARITHMETIC, **{processor.NATIVE: "1"}) == {}


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("2.1.3", processor.BEYOND_BEFORE_2_4),
        ("2.4.0", processor.BEYOND),
        ("2.10.1", processor.BEYOND),
        ("3.0", processor.BEYOND),
    ],
)
def test_numpy_is_given_names_that_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, names: str
) -> None:
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "version.py").write_text(f'"""V"""\nversion = "{version}"\n')
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(os, "environ", {"NPY_ENABLE_CPU_FEATURES": "AVX2"})
    processor.fix_variants()
    assert os.environ == {**processor.VARIANTS, DISABLED: names}
