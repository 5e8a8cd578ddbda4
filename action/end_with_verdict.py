"""Ends the action as the verdict says, with an annotation.

A step of GitHub Actions succeeds or fails; it cannot be neutral. An inconclusive gate that is
allowed to be so succeeds with a warning.

Reads: ESBENCH_EXIT_CODE, ESBENCH_HEADLINE, and ESBENCH_INCONCLUSIVE, which is "fail" or "warn".
"""

from __future__ import annotations

from typing import NoReturn

from runner import annotate, variable

INCONCLUSIVE = 4


def main() -> NoReturn:
    """End with exit code 0, or with that of the check; 2 if there is none."""
    code = int(variable("ESBENCH_EXIT_CODE", "2"))
    headline = variable("ESBENCH_HEADLINE", "the gate did not run; the log has the reason")
    if code == INCONCLUSIVE and variable("ESBENCH_INCONCLUSIVE") == "warn":
        annotate("warning", headline)
        raise SystemExit(0)
    annotate("error" if code else "notice", headline)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
