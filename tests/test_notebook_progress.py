"""What a notebook shows of training."""

import contextlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import esbench
from esbench.core.errors import EsbenchError

GRID: dict[str, Any] = {
    "environments": ["CartPole-v1"],
    "algorithms": {"<b>bold</b>": {"algorithm": "snes"}},
    "seeds": [0, 1],
    "budget": {"generations": 2},
    "evaluation": {"episodes": 2},
    "policy": {"template": "linear"},
}


class Drawn:
    """What IPython was asked to draw, in one place."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []

    def update(self, what: Any) -> None:
        self.texts.append((repr(what), what._repr_html_()))

    def __call__(self, what: Any, display_id: bool) -> "Drawn":
        assert display_id
        self.update(what)
        return self


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """As in the kernel of a notebook."""
    found, ipython, display = Drawn(), ModuleType("IPython"), ModuleType("IPython.display")
    vars(ipython)["get_ipython"] = lambda: SimpleNamespace(kernel=object())
    vars(display)["display"] = found
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return found


def test_a_grid_has_a_bar_and_a_row_per_trial(
    drawn: Drawn, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = esbench.run(GRID, out=tmp_path / "out", workers=0)
    text, html = drawn.texts[-1]
    assert "<progress value='2.000' max='2'>" in html
    assert "<b>" not in html
    assert (html.count("<tr>"), html.count("&lt;b&gt;bold")) == (2, 2)
    for score in frame["score"]:
        assert f"score {score:.1f}" in text
    assert "done" not in capsys.readouterr().out
    assert "<table" in frame._repr_html_()


def test_a_quiet_grid_prints_lines(drawn: Drawn, tmp_path: Any) -> None:
    esbench.run(GRID, out=tmp_path / "out", workers=0, quiet=True)
    assert drawn.texts == []


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (None, "3 generations"),
        (EsbenchError("no more"), "failed"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_a_trainer_shows_its_progress_and_says_what_it_trains(
    drawn: Drawn, error: BaseException | None, word: str
) -> None:
    def check(record: Any) -> None:
        if error is not None and record.generation == 2:
            raise error

    options = {"workers": 0, "budget": {"generations": 3}, "policy": {"template": "linear"}}
    with esbench.make_trainer("snes", env="CartPole-v1", seed=7, **options) as trainer:
        assert all(part in repr(trainer) for part in ("snes", "CartPole-v1", "seed 7"))
        with pytest.raises(type(error)) if error else contextlib.nullcontext():
            trainer.train(callbacks=check)
        assert all(word in text for text in drawn.texts[-1])
        assert f"generation {2 if error else 3} of 3" in repr(trainer)
        assert trainer._pool.progress is None


def test_without_a_notebook_nothing_is_drawn(drawn: Drawn) -> None:
    vars(sys.modules["IPython"])["get_ipython"] = lambda: None
    options = {"workers": 0, "budget": {"generations": 1}, "policy": {"template": "linear"}}
    with esbench.make_trainer("snes", env="CartPole-v1", **options) as trainer:
        trainer.train()
    assert drawn.texts == []
