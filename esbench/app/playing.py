"""Use the policies of stored trials: score, render and export them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from esbench.app.display import Display
from esbench.app.options import Pick, Which, public
from esbench.app.plain_display import PlainDisplay
from esbench.core.errors import EsbenchError, UsageError, require_integer

if TYPE_CHECKING:
    from esbench.core.json_text import Json
    from esbench.experiment.stored_trainer import StoredScore
    from esbench.experiment.trained_policy import TrainedAgent, TrainedPolicy
    from esbench.grids.trial_spec import TrialSpec
    from esbench.results.policy_files import Published
    from esbench.video.render_trial import Rendered

Result = TypeVar("Result")


@public()
def load_policy(
    path: str | Path,
    generation: int | None = None,
    which: Which = "last",
    *,
    seed: int | None = None,
    trust: bool = False,
) -> TrainedPolicy | TrainedAgent:
    """The policy of a trial or of a row of the leaderboard, for use in any Gymnasium loop.

    Args:
        path: the folder of the trial, or a row such as "HalfCheetah-v5/ars_short"; "HalfCheetah-v5"
            is its best row with policies.
        generation: the generation of a kept checkpoint; by default the latest.
        which: "last", or "best" for the largest smoothed return up to that generation.
        seed: training seed of a row (default: the first one).
        trust: as ``run``.

    Raises:
        UsageError: the folder holds no trial, a damaged one, one that names code that is not
            trusted, or one without that checkpoint or without a best policy.

    Examples:
        >>> import numpy
        >>> policy = esbench.load_policy("out/CartPole-v1/snes/seed-0")
        >>> action = policy.act(numpy.zeros(4, numpy.float32))
    """
    from esbench.core.settings import MOST
    from esbench.engine.worker_pool import WorkerPool
    from esbench.experiment.published_policy import load_published
    from esbench.experiment.stored_trainer import stored_trainer
    from esbench.results.policy_files import is_row_name
    from esbench.store.trial_folder import TrialFolder

    if generation is not None:
        require_integer("generation", generation, 1, MOST)
    if is_row_name(str(path)):
        return load_published(_row(path, generation, which, seed), trust).policy
    _require_no_seed(seed)
    folder = TrialFolder(Path(path))
    folder.spec(trust)
    with WorkerPool(1) as pool, stored_trainer(folder, pool, generation) as stored:
        return stored.policy(which)


def _row(name: str | Path, generation: int | None, which: Which, seed: int | None) -> Published:
    from esbench.results.policy_files import find_policy

    if generation is not None or which != "last":
        raise UsageError(f"{name}: a row has its final policies only; expected a trial's folder")
    return find_policy(str(name), seed)


def _require_no_seed(seed: int | None) -> None:
    if seed is not None:
        raise UsageError(f"seed {seed}: expected a row of the leaderboard, not a trial's folder")


@public()
def evaluate(
    trial: str | Path,
    *,
    episodes: int | None = None,
    generation: int | None = None,
    which: Which = "last",
    seed: int | None = None,
    every: bool = False,
    workers: int | None = None,
    trust: bool = False,
) -> dict[Path, StoredScore | EsbenchError]:
    """Score a stored policy again on its held-out episodes.

    The score of a finished trial's best policy is kept for 'esbench table --which best'.

    Args:
        trial: a trial's folder, or a row of the leaderboard such as HalfCheetah-v5/ars_short.
        episodes: number of held-out episodes.
        generation: generation of a kept checkpoint (default: the latest).
        which: the final policy, or the best one: that with the largest mean return over five
            generations.
        seed: training seed of a row (default: the first one).
        every: score every trial in ``trial``, a folder of trials.
        workers: as ``run``.
        trust: as ``run``.

    Returns:
        The new and the recorded score by the trial's folder or the row. With ``every``, the error
        of a trial that cannot be scored.

    Raises:
        UsageError: the folder holds no trial, or one without that checkpoint or a best policy.

    Examples:
        >>> (score,) = esbench.evaluate("out/CartPole-v1/snes/seed-0", episodes=5)
    """
    return dict(evaluations(trial, episodes, generation, which, seed, every, workers, trust))


def evaluations(
    trial: str | Path,
    episodes: int | None,
    generation: int | None,
    which: Which,
    seed: int | None,
    every: bool,
    workers: int | None,
    trust: bool,
) -> Iterator[tuple[Path, StoredScore | EsbenchError]]:
    """Yield what ``evaluate`` returns, one trial after another."""
    from esbench.experiment.engines import local_engine
    from esbench.experiment.stored_trainer import evaluate_row, evaluate_trial, keep_best
    from esbench.results.policy_files import is_row_name
    from esbench.store.find_trials import find_trials
    from esbench.store.own_code import read_again

    path = Path(trial)
    if is_row_name(str(trial)) and not every:
        row = _row(trial, generation, which, seed)
        with local_engine(workers) as pool:
            yield Path(row.name), evaluate_row(row, pool, episodes, trust)
        return
    _require_no_seed(seed)
    folders = [item.path for item in find_trials(path)] if every else [path]
    specs = [*_specs(folders, trust)]
    read_again(specs)
    with local_engine(workers, specs) as pool:

        def score(folder: Path) -> StoredScore:
            stored = evaluate_trial(folder, pool, episodes, generation, which)
            if which == "best" and generation is None:
                keep_best(folder, stored)
            return stored

        for folder in folders:
            yield folder, _attempted(partial(score, folder), every, folder, trust)


def _specs(folders: Sequence[Path], trust: bool) -> Iterator[TrialSpec]:
    """Yield the specifications of trials that can be read."""
    from esbench.store.trial_folder import TrialFolder

    for folder in folders:
        with contextlib.suppress(UsageError):  # reported when the trial is scored
            yield TrialFolder(folder).spec(trust)


def _attempted(
    make: Callable[[], Result], one_of_several: bool, folder: Path, trust: bool
) -> Result | EsbenchError:
    """What is made of a trial, or its error if it is one of several."""
    from esbench.store.trial_folder import TrialFolder

    try:
        TrialFolder(folder).spec(trust)  # before anything else of it is used
        return make()
    except EsbenchError as error:
        if not one_of_several:
            raise
        return error


@public()
def render(
    trial: str | Path,
    *,
    episode: int = 0,
    generation: int | None = None,
    which: Which = "last",
    seed: int | None = None,
    pick: Pick | None = None,
    out: str | Path | None = None,
    max_steps: int = 1000,
    every: bool = False,
    trust: bool = False,
) -> list[Rendered]:
    """Write a film of a stored policy in one of its held-out episodes.

    Args:
        trial: as ``evaluate``.
        episode: index of the held-out episode, from 0.
        generation: as ``evaluate``.
        which: as ``evaluate``.
        seed: as ``evaluate``.
        pick: the held-out episode whose return is nearest to the median, or the lowest one; of a
            row without a seed, among those of all seeds.
        out: a .gif, .webp or .mp4 file (default: render.gif in the folder of the trial, or in the
            current one for a row); with ``every``, the file's name in each trial's folder.
        max_steps: largest number of steps to show; the return is of the whole episode.
        every: write a file for every kept checkpoint of every trial in ``trial``, which may be a
            folder of trials.
        trust: as ``run``.

    Returns:
        The files and their episodes; with ``every``, without those that cannot be rendered.

    Raises:
        UsageError: the folder holds no trial, or the file cannot be written.

    Examples:
        >>> film = esbench.render("out/CartPole-v1/snes/seed-0", out="film.mp4", max_steps=20)
    """
    found = renderings(
        PlainDisplay(), trial, episode, generation, which, seed, pick, out, max_steps, every, trust
    )
    return [each for _, each in found if not isinstance(each, EsbenchError)]


def renderings(
    display: Display,
    trial: str | Path,
    episode: int,
    generation: int | None,
    which: Which,
    seed: int | None,
    pick: Pick | None,
    out: str | Path | None,
    max_steps: int,
    every: bool,
    trust: bool,
) -> Iterator[tuple[Path, Rendered | EsbenchError]]:
    """Yield the folder and the file of one checkpoint after another."""
    from esbench.experiment.published_policy import load_published
    from esbench.results.policy_files import find_episode, is_row_name
    from esbench.video.render_trial import outputs, render_policy, render_trial

    name = None if out is None else Path(out)
    if pick is not None and episode:
        raise UsageError(f"--pick {pick} cannot be combined with --episode {episode}")
    if is_row_name(str(trial)) and not every:
        row = _row(trial, generation, which, seed)
        if pick is not None:
            row, episode = find_episode(str(trial), pick, seed)
        file = name or Path("render.gif")
        with display.working(f"rendering {file}"):
            policy, returns = load_published(row, trust).policy, row.arrays["returns"].tolist()
            film = render_policy(policy, returns, file, episode, max_steps)
            yield file, replace(film, row=row.name)
        return
    _require_no_seed(seed)
    for folder, kept, file in outputs(Path(trial), name, every, generation):
        with display.working(f"rendering {file}"):
            make = partial(render_trial, folder, file, episode, max_steps, kept, which, pick)
            rendered = _attempted(make, every, folder, trust)
        yield folder, rendered


@public()
def export(
    trial: str | Path,
    *,
    generation: int | None = None,
    which: Which = "last",
    seed: int | None = None,
    out: str | Path | None = None,
    trust: bool = False,
    display: Display | None = None,
) -> Json:
    """Write a stored policy as a file that is read without esbench.

    Args:
        trial: as ``evaluate``.
        generation: as ``evaluate``.
        which: as ``evaluate``.
        seed: as ``evaluate``.
        out: a file ending in .pt2 (torch.export), .onnx (ONNX) or .pt (TorchScript); default:
            policy.pt2 in the trial's folder, or in the current one for a row.
        trust: as ``run``.
        display: shows that it takes a while.

    Returns:
        The description in the file, and its path as ``file``.

    Raises:
        UsageError: the suffix is unknown, a package is missing, the folder holds no trial, its
            policy cannot be exported, or the file cannot be written.

    Examples:
        >>> about = esbench.export("out/CartPole-v1/snes/seed-0")
    """
    from esbench.experiment.exported_policy import export_policy, require_format
    from esbench.results.policy_files import is_row_name

    folder = Path() if is_row_name(str(trial)) else Path(trial)
    file = folder / "policy.pt2" if out is None else Path(out)
    require_format(file)
    with (display or PlainDisplay()).working(f"exporting {file}"):
        policy = load_policy(trial, generation, which, seed=seed, trust=trust)
        about = export_policy(policy, file)
    return {**about, "file": file}
