"""Starts a trial from the policy of another one."""

from __future__ import annotations

from pathlib import Path

from esbench.core.arrays import State, Vector
from esbench.core.errors import UsageError
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.evaluator import INITIAL_LINEAGE
from esbench.experiment.scoring import stored_trainer
from esbench.experiment.search_trainer import SearchTrainer
from esbench.grids.trial_spec import StartSpec, TrialSpec, differences
from esbench.policies.policy import Policy
from esbench.store.trial_folder import TrialFolder


def latest_start(path: str | Path | None) -> StartSpec | None:
    """The latest checkpoint of a trial as a start, or None without a path.

    Raises:
        UsageError: the folder holds no trial, a damaged one, or one without a generation.
    """
    if path is None:
        return None
    folder = TrialFolder(Path(path))
    try:
        state = folder.load_checkpoint()
        generation = 0 if state is None else state["progress"]["generation"]
        if not generation:
            expected = "a trial of a search" if folder.is_done else "a trained trial"
            raise UsageError(f"{folder.path} has no checkpoint; expected {expected}")
        digest = folder.records()[generation - 1].digest
    except UsageError as error:
        raise UsageError(f"init_from = {str(path)!r}: {error}") from None
    return StartSpec(trial=str(folder.path), generation=generation, digest=digest)


def load_start(start: StartSpec, spec: TrialSpec, policy: Policy) -> tuple[Vector, State]:
    """The center [P] of a start, and the state of an evaluator that has its normalizer.

    Args:
        start: the checkpoint of the other trial.
        spec: the specification of the trial that begins there.
        policy: the policy template of that trial.

    Raises:
        UsageError: the start has changed since it was recorded, or has another policy.
    """
    place = f"init_from = {start.trial!r}"
    if getattr(spec.algorithm.settings, "center_init", None) is not None:
        raise UsageError(f"{place}: the algorithm has a center_init too; expected one of them")
    with WorkerPool(1) as pool:
        try:
            stored = stored_trainer(TrialFolder(Path(start.trial)), pool, start.generation)
            with stored as source:
                if not isinstance(source, SearchTrainer):
                    raise UsageError(f"{source.spec.algorithm.name} is an agent; expected a search")
                state = source.state_dict()
        except UsageError as error:
            raise UsageError(f"{place}: {error}") from None
    if (digest := source.history[-1].digest) != start.digest:
        raise UsageError(
            f"{place}: generation {start.generation} has the digest {digest}; expected the "
            f"recorded one, {start.digest}"
        )
    changed = differences(*(each.as_json()["policy"] for each in (source.spec, spec)))
    sizes = [(each.num_inputs, each.num_outputs) for each in (source.template, policy)]
    if not changed and sizes[0] != sizes[1]:
        changed = ["inputs and outputs were {} and {}, are now {} and {}".format(*sum(sizes, ()))]
    if changed:
        raise UsageError(
            f"{place}: the policy of {source.spec.environment.id} is not that of "
            f"{spec.environment.id}: {'; '.join(changed)}; expected the same policy"
        )
    lineage = str(source.algorithm.plan.center_lineage)
    statistics = (
        {str(INITIAL_LINEAGE): state["statistics"][lineage]}
        if lineage in state["statistics"]
        else {}
    )
    return source.algorithm.averaged_center, {
        **state,
        "statistics": statistics,
        "mean_length": None,
    }
