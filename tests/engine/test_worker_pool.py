import os
import signal
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_line import end_soon, finished, python
from trainers import train

from esbench.core.errors import EnvironmentFailedError, TrainingError
from esbench.core.noise import GaussianNoise
from esbench.core.population import SampledPopulation
from esbench.core.seeding import Purpose, noise_key
from esbench.engine.child_process import Child
from esbench.engine.engine import Engine
from esbench.engine.jobs import CENTER, Episodes, Job, Task, member_tasks
from esbench.engine.setup import Setup
from esbench.engine.this_process import ThisProcess
from esbench.engine.worker_pool import WorkerPool, round_size
from esbench.experiment.search_trainer import SearchTrainer
from esbench.grids.trial_spec import TrialSpec
from esbench.policies.normalization import ObservationStatistics

Spec = Callable[..., TrialSpec]


@pytest.fixture(scope="module")
def trio() -> Iterator[WorkerPool]:
    """Two workers with three slots each."""
    with WorkerPool(2, slots=3) as shared:
        yield shared


def digests(spec: TrialSpec, pool: Engine) -> list[str]:
    return [record.digest for record in train(spec, pool).history]


MLP: dict[str, Any] = {"template": "mlp", "hidden": [4], "normalize_observations": True}
MODULE = {"template": "module", "factory": "every_kind:Network"}


@pytest.mark.parametrize(
    ("environment", "algorithm", "policy"),
    [
        ("CartPole-v1", "openai_es", MLP),
        ("Hopper-v5", "openai_es", MLP),
        ("doubles:Walk-v0", "openai_es", MLP),
        ("maze:DeceptiveMaze-v0", "nsr_es", MLP),
        ("every_kind:Picture-v0", "openai_es", MODULE),
    ],
)
def test_digests_do_not_depend_on_workers_or_slots(
    make_spec: Spec,
    single: WorkerPool,
    trio: WorkerPool,
    environment: str,
    algorithm: str,
    policy: dict[str, Any],
) -> None:
    settings = {"population_size": 14, "sigma": 0.5}
    if algorithm == "openai_es":
        settings["num_interactions"] = 100
    steps = 1 if policy is MODULE else 1000
    table = {"max_episode_steps": "adaptive", "episodes_per_member": 2}
    spec = make_spec(
        environment,
        algorithm,
        settings=settings,
        environment={environment: table},
        budget={"env_steps": steps},
        policy=policy,
    )
    results = [digests(spec, engine) for engine in (ThisProcess(1), ThisProcess(64), single, trio)]
    assert len(results[0]) >= min(2, steps)
    assert all(result == results[0] for result in results[1:])


def test_an_environment_that_takes_long_to_make_is_made_a_few_times(
    make_spec: Spec, tmp_path: Path, trio: WorkerPool
) -> None:
    expected = play_walks(trio, make_spec("doubles:Walk-v0"))
    heavy, log, made = make_spec("doubles:Heavy-v0"), tmp_path / "log.txt", []
    with WorkerPool(2, slots=40) as pool:
        configure(pool, heavy, log)
        made.append(log.read_text().count("made"))
        played = pool.play(walk_job(40), [Task(CENTER, 0), *member_tasks(range(40), 1)])
        made.append(log.read_text().count("made"))
    assert made == [2 * 2, 7 * 2]  # 41 episodes: three whole rounds of seven
    np.testing.assert_array_equal(played.returns, expected.returns)


def make_job(members: int, num_params: int, **more: Any) -> Job:
    center = np.zeros(num_params)
    noise = GaussianNoise(noise_key(0, 0), center.size)
    population = SampledPopulation(center=center, sigma=0.1, noise=noise, size=members)
    return Job(0, 0, Purpose.TRAINING_EPISODE, population, center, episodes=1, **more)


def configure(pool: WorkerPool, spec: TrialSpec, log: Path | None = None) -> None:
    pool.configure(Setup(spec.environment, spec.policy), log)


def play_walks(pool: WorkerPool, spec: TrialSpec, members: int = 40) -> Episodes:
    configure(pool, spec)
    return pool.play(walk_job(members), [Task(CENTER, 0), *member_tasks(range(members), 1)])


def walk_job(members: int) -> Job:
    return make_job(members, 31)  # 3-4-3 with biases


def test_episodes_are_counted_while_they_are_played(make_spec: Spec, trio: WorkerPool) -> None:
    spec, counts = make_spec("doubles:Walk-v0"), list[tuple[int, int]]()
    expected = play_walks(trio, spec)
    trio.progress = lambda done, total: counts.append((done, total))
    played = play_walks(trio, spec)
    trio.progress = None
    np.testing.assert_array_equal(played.returns, expected.returns)
    assert len(counts) > 1
    assert counts == sorted(set(counts))
    assert counts[-1] == (41, 41)  # with the center


def kill(pool: WorkerPool, number: int) -> None:
    process = pool.process_ids[number]
    os.kill(process, signal.SIGKILL)
    assert end_soon([process])


def kill_soon(pool: WorkerPool) -> None:
    """Kill a worker while it plays."""
    threading.Timer(0.1, os.kill, (pool.process_ids[0], signal.SIGKILL)).start()


@pytest.mark.parametrize(
    ("name", "size", "strike"),
    [
        ("Slow-v0", 2, kill_soon),
        ("Walk-v0", 2, lambda pool: kill(pool, 1)),  # between two jobs
        ("Walk-v0", 3, lambda pool: [kill(pool, number) for number in range(3)]),
        ("Forks-v0", 2, kill_soon),
    ],
    ids=["one_dies", "one_is_dead", "all_die_once", "another_process_holds_the_pipes"],
)
def test_dead_workers_are_replaced_and_their_episodes_are_the_same(
    make_spec: Spec,
    trio: WorkerPool,
    tmp_path: Path,
    name: str,
    size: int,
    strike: Callable[[WorkerPool], object],
) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    kwargs = {"kwargs": {"flag": str(flag)}} if name == "Forks-v0" else {}
    spec = make_spec(f"doubles:{name}", environment={f"doubles:{name}": kwargs})
    with nullcontext(trio) if size == 2 else WorkerPool(size) as pool:
        expected, before = play_walks(pool, spec), pool.process_ids
        strike(pool)
        played = play_walks(pool, spec)
        assert pool.process_ids != before
    assert flag.read_text() == ""  # a process that holds the pipes still did
    flag.unlink()
    np.testing.assert_array_equal(played.returns, expected.returns)
    np.testing.assert_array_equal(played.lengths, expected.lengths)


@pytest.mark.parametrize("taker_dies", [False, True])
def test_running_episodes_move_to_the_worker_that_has_none_left(
    make_spec: Spec, single: WorkerPool, taker_dies: bool
) -> None:
    spec = make_spec("HalfCheetah-v5", policy={"template": "linear"})
    normalizer = ObservationStatistics(17).normalizer(5.0)
    job = make_job(24, 17 * 6 + 6, normalizer=normalizer, gather=True, max_steps=400)
    configure(single, spec)
    expected = single.play(job, member_tasks(range(24), 1))
    assert single.moved == 0
    with WorkerPool(2, slots=12) as pool:
        configure(pool, spec)
        slow, taker = pool.process_ids

        def hinder() -> None:
            time.sleep(0.1)
            os.kill(slow, signal.SIGSTOP)
            time.sleep(1.0)
            os.kill(slow, signal.SIGCONT)
            deadline = time.monotonic() + 20
            while taker_dies and not pool.moved and time.monotonic() < deadline:
                time.sleep(0.001)
            if taker_dies:
                os.kill(taker, signal.SIGKILL)

        hindrance = threading.Thread(target=hinder)
        hindrance.start()
        played = pool.play(job, member_tasks(range(24), 1))
        hindrance.join()
        assert pool.moved > 0
        assert (taker in pool.process_ids) != taker_dies
        assert not any(worker.sharing or worker.held for worker in pool._workers)
    np.testing.assert_array_equal(played.returns, expected.returns)
    for ours, theirs in zip(played.moments, expected.moments, strict=True):
        np.testing.assert_equal(ours, theirs)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("doubles:Dies-v0", r"died 3 times .* SIGKILL \(out of memory\?\)"),
        ("doubles:DiesInWorkers-v0", "died 3 times .* SIGABRT, .* loaded the environment"),
    ],
)
def test_workers_that_keep_dying_end_the_trial(
    make_spec: Spec, tmp_path: Path, name: str, facts: str
) -> None:
    flag = tmp_path / "flag"
    flag.write_bytes(b"x" * 1000)
    kwargs = {"flag": str(flag)} if name == "doubles:Dies-v0" else {}
    spec = make_spec(name, environment={name: {"kwargs": kwargs}})
    with WorkerPool(1, slots=1) as pool, pytest.raises(TrainingError, match=facts):
        play_walks(pool, spec)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("doubles:Raises-v0", "RuntimeError: the simulator fell over"),
        ("doubles:Disconnects-v0", "EOFError: the server hung up"),
    ],
)
def test_an_environment_that_raises_fails_with_its_own_traceback(
    make_spec: Spec, trio: WorkerPool, name: str, message: str
) -> None:
    spec = make_spec(name)
    with pytest.raises(EnvironmentFailedError, match=message) as caught:
        play_walks(trio, spec)
    assert "doubles.py" in caught.value.traceback
    assert trio.process_ids == []
    expected = play_walks(trio, make_spec())  # the pool starts new workers for the next trial
    assert np.isfinite(expected.returns).all()


def test_trainers_on_one_pool_take_turns(make_spec: Spec, pool: WorkerPool) -> None:
    first, second = make_spec(), make_spec("Pendulum-v1")
    with SearchTrainer(first, pool) as one, SearchTrainer(second, pool) as other:
        one.train(env_steps=1)
        other.train(env_steps=1)
        turns = [one.evaluate(5).returns.tolist() for _ in range(2)]
        other.evaluate(5)
    with SearchTrainer(first, pool) as alone:
        alone.train(env_steps=1)
        assert turns == [alone.evaluate(5).returns.tolist()] * 2


def test_what_workers_print_goes_to_the_log_and_a_warning_of_mujoco_once(
    make_spec: Spec,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with WorkerPool(1, slots=6) as pool:
        for name in ("doubles:Chatty-v0", "HalfCheetah-v5"):
            spec = make_spec(name, environment={name: {"max_episode_steps": 5}})
            with SearchTrainer(spec, pool, folder=tmp_path) as trainer:
                trainer.train(env_steps=1)
    logged = (tmp_path / "log.txt").read_text()
    assert "hello from Python\n" in logged
    assert "hello from C\n" in logged
    assert logged.count("settotalmass") == 1
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "MUJOCO_LOG.TXT").exists()


@pytest.mark.parametrize(
    ("tasks", "size", "slots", "width"),
    [
        (257, 2, 72, 65),  # two rounds; with 64 at once the last would run alone
        (65, 2, 72, 33),
        (144, 2, 72, 72),
        (146, 2, 72, 37),
        (3, 2, 72, 2),
        (1, 2, 72, 1),
        (10, 1, 3, 3),
        (0, 2, 72, 1),
    ],
)
def test_a_generation_is_played_in_whole_rounds(
    tasks: int, size: int, slots: int, width: int
) -> None:
    assert round_size(tasks, size, slots) == width


def test_loading_is_no_part_of_the_time_of_training(
    make_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[None] = []
    await_ready = WorkerPool._await_ready

    def counted(pool: WorkerPool) -> None:
        await_ready(pool)
        loads.append(None)

    clock = SimpleNamespace(
        perf_counter=lambda: float(len(loads)),  # a second for every time the workers load
        process_time=time.process_time,
        monotonic=time.monotonic,
    )
    monkeypatch.setattr(WorkerPool, "_await_ready", counted)
    monkeypatch.setattr("esbench.experiment.trainer.time", clock)
    with (
        WorkerPool(1, slots=3) as pool,
        SearchTrainer(make_spec("doubles:Walk-v0"), pool) as trainer,
    ):
        trainer.train(env_steps=1)
    assert (len(loads), trainer.progress.wall_time_s) == (1, 0.0)


def test_what_workers_cannot_load_is_said_at_once_and_ends_them(
    make_spec: Spec, trio: WorkerPool
) -> None:
    good, bad = make_spec("doubles:Walk-v0"), make_spec("doubles:FailsInWorkers-v0")
    expected = play_walks(trio, good)
    with pytest.raises(EnvironmentFailedError, match="made: OSError: no license"):
        configure(trio, bad)
    assert trio.process_ids == []
    np.testing.assert_array_equal(play_walks(trio, good).returns, expected.returns)


def test_an_interrupt_while_they_load_ends_them(
    make_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    one, other = make_spec("doubles:Walk-v0"), make_spec("CartPole-v1")
    with WorkerPool(1, slots=3) as pool:
        expected = play_walks(pool, one)
        for owner, step in ((Child, "send"), (WorkerPool, "_await_ready")):
            with monkeypatch.context() as patch:
                patch.setattr(owner, step, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    configure(pool, other)
            assert pool.process_ids == []
            np.testing.assert_array_equal(play_walks(pool, one).returns, expected.returns)


def test_workers_that_die_while_they_load_are_replaced(make_spec: Spec) -> None:
    spec = make_spec("doubles:Walk-v0")
    with WorkerPool(2, slots=3) as pool:
        pool.start()
        killed, left = pool.process_ids
        os.kill(killed, signal.SIGKILL)
        played = play_walks(pool, spec)
        assert killed not in pool.process_ids
        assert left in pool.process_ids
        np.testing.assert_array_equal(play_walks(pool, spec).returns, played.returns)


def test_no_worker_outlives_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import esbench

        if __name__ == "__main__":
            trainer = esbench.make_trainer("snes", env="doubles:Slow-v0", workers=2)

            def report(record):
                print(*trainer._pool.process_ids, flush=True)

            trainer.train(callbacks=[report])
        """)
    )
    with python(str(script), stderr=None) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        process.kill()
        process.stdout.read()
        process.wait(timeout=20)
    assert end_soon(pids)


def test_a_script_from_standard_input_can_train(tmp_path: Path) -> None:
    call = "make_trainer('snes', env='CartPole-v1', population_size=8, workers=2)"
    script = tmp_path / "script.py"
    script.write_text(
        f"import esbench\nif __name__ == '__main__':\n    esbench.{call}.train(env_steps=100)\n"
    )
    with script.open() as stdin:
        code, _, err = finished("-", cwd=tmp_path, stdin=stdin)
    assert (code, err) == (0, "")


def test_a_job_begins_although_episodes_of_the_last_one_still_run(
    make_spec: Spec, trio: WorkerPool
) -> None:
    spec = make_spec("doubles:Slow-v0")
    expected = play_walks(trio, spec, members=6)
    tasks = member_tasks(range(12), 1)
    for between in (lambda: None, trio.step):
        trio.begin(walk_job(12), tasks, len(tasks))
        between()
        assert not trio.is_idle
        played = play_walks(trio, spec, members=6)
        np.testing.assert_array_equal(played.returns, expected.returns)
    trio.begin(walk_job(12), tasks, len(tasks))
    os.kill(trio.process_ids[0], signal.SIGKILL)
    configure(trio, make_spec())  # while they run
    assert play_walks(trio, spec, members=6).returns.tolist() == expected.returns.tolist()


@pytest.mark.parametrize("loads", [True, False])
def test_a_replacement_may_still_load_when_the_next_job_begins(
    make_spec: Spec, tmp_path: Path, loads: bool
) -> None:
    name, broken = "doubles:MayFail-v0", tmp_path / "broken"
    spec = make_spec(name, environment={name: {"kwargs": {"flag": str(broken)}}})
    with WorkerPool(1, slots=4) as pool:
        expected = play_walks(pool, spec, members=6)
        tasks = member_tasks(range(60), 1)
        pool.begin(walk_job(60), tasks, len(tasks))
        if not loads:
            broken.touch()
        (victim,) = pool.process_ids
        os.kill(victim, signal.SIGKILL)
        while pool.process_ids == [victim]:
            pool.step()
        if not loads:
            with pytest.raises(EnvironmentFailedError, match="no license"):
                play_walks(pool, spec, members=6)
            return
        played = play_walks(pool, spec, members=6)
        configure(pool, make_spec())  # waits until all have loaded
    np.testing.assert_array_equal(played.returns, expected.returns)


def test_a_pool_is_given_episodes_in_portions(make_spec: Spec, trio: WorkerPool) -> None:
    spec = make_spec()
    expected = play_walks(trio, spec, members=30)
    tasks = member_tasks(range(30), 1)
    trio.begin(walk_job(30), tasks[:10], total=30)
    trio.add(tasks[10:])
    assert trio.queued > 5
    trio.drop(tasks[-5:])  # no worker has these yet
    returns: dict[int, float] = {}
    while not trio.is_idle:
        returns |= {result.task.member: result.total for result in trio.step(seconds=1.0)}
    assert [returns[member] for member in range(25)] == expected.returns[:25, 0].tolist()
    assert len(returns) == 25


def test_a_log_that_cannot_be_written_stops_no_training(make_spec: Spec, trio: WorkerPool) -> None:
    configure(trio, make_spec(), Path("/dev/full/log.txt"))
    assert len(trio.play(walk_job(6), member_tasks(range(6), 1)).returns) == 6
