import time

import pytest

from esbench.engine.engine import Stopwatch


def test_laps_add_up_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 3.0, 10.0, 14.0, 20.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))
    watch = Stopwatch()  # at 0
    watch.lap("act")  # at 1
    watch.lap("simulate")  # at 3
    watch.start()  # at 10: what was before counts for nothing
    watch.lap("act")  # at 14
    assert watch.seconds == {"act": 5.0, "simulate": 2.0}
    watch.add({"act": 1.0, "reset": 2.0})
    assert watch.take() == {"act": 6.0, "simulate": 2.0, "reset": 2.0}
    assert watch.seconds == {}
    watch.lap("act")  # at 20
    assert watch.take() == {"act": 6.0}
