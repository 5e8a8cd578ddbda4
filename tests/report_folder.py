"""An output folder that has everything a report must show."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from fake_trials import learning, make_records, make_trials, write_trial

from esbench.store.generation_record import GenerationRecord

ENVIRONMENTS = ("Acrobot-v1", "CartPole-v1")
ALGORITHMS = ("cma_es", "openai_es", "snes")
GENERATIONS = 30
PARAMETERS = 25
FAILURE = "ValueError: <b>no</b> & </script><script>document.title = 'taken over'</script>"


def health_records(seed: int, end: float, sigma: float = 0.1) -> list[GenerationRecord]:
    """Rows with all measures of health."""
    generator = np.random.default_rng(seed)
    records = make_records(
        learning(GENERATIONS, end, seed), generator.integers(0, 11, GENERATIONS) / 10
    )
    return [
        replace(
            record,
            sigma=sigma,
            update_norm=float(generator.uniform(0.5, 1.5)),
            tied_returns=float(generator.uniform()),
            update_cosine=float("nan") if not number else float(generator.uniform(0.5, 0.9)),
            split_half_cosine=float(generator.normal(scale=0.1)),
            center_norm=1.0,
            distance=0.1 * number,
            observation_drift=1 / (number + 1),
        )
        for number, record in enumerate(records)
    ]


def write_folder(root: Path) -> Path:
    """Write trials of three algorithms on two environments; one has failed, one is half done."""
    trials = make_trials(
        root,
        environments=list(ENVIRONMENTS),
        algorithms={name: {} for name in ALGORITHMS},
        policy={"template": "mlp", "hidden": [4]},
        seeds=[0, 1, 2, 3],
    )
    for number, trial in enumerate(trials):
        seed, name = trial.spec.seed, trial.labels["algorithm"]
        end = {"Acrobot-v1": 20.0, "CartPole-v1": 400.0}[trial.labels["environment"]]
        records = health_records(number, end + 20 * ALGORITHMS.index(name))
        match name, seed:
            case "snes", 3:
                write_trial(trial, records[:5], error=f"Traceback\n{FAILURE}")
            case "snes", 2:
                write_trial(trial, records[:9])
            case _:
                write_trial(trial, records, records[-1].center_return, parameters=PARAMETERS)
    return root
