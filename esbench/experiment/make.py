"""Makes the trainer of a trial: its name says which kind."""

from __future__ import annotations

from pathlib import Path

from esbench.engine.engine import Engine
from esbench.engine.setup import Setup
from esbench.environments.backends.backend import GYMNASIUM
from esbench.experiment.agent_trainer import AgentTrainer
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.trainer import Ended, Recorder, Trainer
from esbench.grids.trial_spec import TrialSpec


def make_trainer(
    spec: TrialSpec,
    pool: Engine | None = None,
    recorder: Recorder | None = None,
    folder: Path | None = None,
    start: bool = True,
    ended: Ended | None = None,
) -> Trainer:
    """The trainer of a trial; the arguments are those of ``SearchTrainer``.

    Raises:
        UsageError: the environment, the policy or a setting is not supported.
    """
    if spec.is_agent:
        return AgentTrainer(spec, pool, recorder, folder, ended)
    return SearchTrainer(spec, pool, recorder, folder, start, ended)


def backend_of(spec: TrialSpec) -> str:
    """The name of the backend that plays the training episodes of a trial."""
    return GYMNASIUM if spec.policy is None else Setup(spec.environment, spec.policy).backend_name
