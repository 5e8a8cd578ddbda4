"""Jobs, and their episodes played in the tests' process."""

from dataclasses import replace

from esbench.core.noise import GaussianNoise
from esbench.core.population import SampledPopulation
from esbench.core.seeding import Purpose, noise_key, stream
from esbench.engine.jobs import EpisodeResult, Job, Task
from esbench.engine.player import Player


def make_job(player: Player, size: int = 6, **changes: object) -> Job:
    center = player.policy.initial_parameters(stream(0, Purpose.INITIALIZATION))
    noise = GaussianNoise(noise_key(0, 0), center.size)
    population = SampledPopulation(center=center, sigma=0.3, noise=noise, size=size)
    job = Job(0, 3, Purpose.TRAINING_EPISODE, population, center, episodes=2)
    return replace(job, **changes)  # type: ignore[arg-type]


def play(player: Player, job: Job, tasks: list[Task]) -> dict[Task, EpisodeResult]:
    player.begin(job)
    player.add(tasks)
    results: list[EpisodeResult] = []
    while player.busy:
        results += player.step()
    assert len(results) == len(tasks)
    return {result.task: result for result in results}
