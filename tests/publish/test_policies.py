"""The published policies of a leaderboard play the episodes that were scored."""

import hashlib
import io
import json
import os
import pickle
import secrets
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkout import LEADERBOARD
from command_line import Run, files
from safetensors.numpy import load_file, save_file

from esbench import export, leaderboard, load_policy, make_trainer, policies_of
from esbench.core.errors import TrainingError, UsageError
from esbench.engine.this_process import ThisProcess
from esbench.experiment.published_policy import published_policy
from esbench.experiment.trained_policy import episode
from esbench.policies.kernels.torch_modules import VirtualBatchNorm
from esbench.publish.leaderboard.submit import SubmitAction, submit
from esbench.publish.leaderboard.table import zoo
from esbench.publish.replay import fewest_episodes, p_of_pairs, play_again, with_policies
from esbench.publish.reproduce import draw_sample
from esbench.publish.verification import RerunOutcome, Verification, sentences
from esbench.results import policy_files as policies_of_rows
from esbench.results.entries import LeftOut, as_file, read_entry
from esbench.results.policy_files import find_policy, policies_folder, read_policies
from esbench.results.statistics.significance import LEVEL

WALK = "doubles:Walk-v0"


@pytest.fixture
def board(board_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The leaderboard of a cell, with its policies, where rows are looked up."""
    board = Path(shutil.copytree(board_once.parent, tmp_path / "results") / "board")
    monkeypatch.setattr(policies_of_rows, "PLACES", [board])
    return board


def edit_row(board: Path, **changes: Any) -> None:
    """Change fields of the row."""
    (path,) = board.glob("*.json")
    path.write_bytes(as_file(read_entry(path).model_copy(update=changes)))


def edit_policies(
    board: Path, change: Callable[[dict[str, Any]], object], numpy: str | None = None
) -> None:
    """Change the published policies of the row, and what else would tell of it."""
    (path,), (policies,) = board.glob("*.json"), policies_folder(board).iterdir()
    entry, arrays = read_entry(path), load_file(policies)
    change(arrays)
    save_file(arrays, policies, {"row": entry.name})
    first, *others = entry.origins
    if numpy:
        first = first.model_copy(update={"versions": first.versions | {"numpy": numpy}})
    digest = hashlib.sha256(policies.read_bytes()).hexdigest()
    edit_row(board, policies=digest, origins=(first, *others))


def negate(*seeds: int) -> Callable[[dict[str, Any]], object]:
    """A function that negates the parameters of some seeds."""

    def change(arrays: dict[str, Any]) -> None:
        arrays.update({f"{s}.parameters": -arrays[f"{s}.parameters"] for s in seeds})

    return change


def replayed(board: Path, episodes: int | None = None) -> list[Verification]:
    entries = [read_entry(path) for path in sorted(board.glob("*.json"))]
    replays = [with_policies(cell, board, episodes) for cell in draw_sample(entries, None, 0)]
    with ThisProcess() as here:
        return [play_again(each, here) for each in replays]


class Normed(torch.nn.Module):
    """Has a reference batch because of its layer."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        layers = VirtualBatchNorm(num_inputs), torch.nn.Linear(num_inputs, num_outputs)
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, observations: torch.Tensor) -> Any:
        return self.layers(observations)


@pytest.mark.parametrize(
    ("environment", "policy"),
    [
        ("HalfCheetah-v5", {"template": "linear", "normalize_observations": True}),
        ("doubles:Pictures-v0", {
            "template": "small_conv", "layers": [[3, 4, 2]], "hidden": [2],
            "virtual_batch_norm": True, "reference_size": 4,
        }),
        ("CartPole-v1", {"template": "test_policies:Normed", "reference_size": 4}),
    ],
)  # fmt: skip
def test_normalizer_and_reference_batch_belong_to_a_policy(
    esbench: Run, tmp_path: Path, environment: str, policy: dict[str, Any]
) -> None:
    settings = [f"--set=policy.{key}={json.dumps(value)}" for key, value in policy.items()]
    limit = f'--set=environment."{environment}".kwargs.max_episode_steps=8'
    code, _, err = esbench(
        "run", "--env", environment, "--algorithm", "snes", "--seeds", "0-2", "--env-steps", "30",
        "--set", "algorithms.snes.population_size=2", "--set", "evaluation.episodes=2",
        "--workers", "0", "--quiet", "--out", "out", limit, *settings,
    )  # fmt: skip
    assert code == 0, err
    submit(tmp_path / "out", tmp_path / "board")
    (found,) = replayed(tmp_path / "board")
    assert found.outcome is RerunOutcome.IDENTICAL


def test_a_row_without_policies_gets_those_of_seeds_that_are_trained_again(
    trained: Path, board: Path
) -> None:
    (path,), (policies,) = board.glob("*.json"), policies_folder(board).iterdir()
    before = path.read_bytes(), policies.read_bytes()
    edit_row(board, policies=None)
    policies.unlink()
    with pytest.raises(UsageError, match="not published yet"):
        replayed(board)
    assert submit(trained, board) == {path: SubmitAction.EXTENDED}
    assert (path.read_bytes(), policies.read_bytes()) == before
    assert submit(trained, board) == {path: SubmitAction.UNCHANGED}


def _renamed(arrays: Any) -> None:
    arrays["9.parameters"] = arrays.pop("0.parameters")


def _without(name: str) -> Callable[[Any], None]:
    return lambda arrays: arrays.pop(name)


def _changed(name: str, change: Callable[[Any], Any]) -> Callable[[Any], None]:
    return lambda arrays: arrays.update({name: change(arrays[name])})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_renamed, "9.parameters"),
        (_without("0.parameters"), "lacks"),
        (_without("0.returns"), "lacks"),
        (_changed("0.parameters", lambda a: a[:-1]), "of shape"),
        (_changed("0.parameters", lambda a: a * np.nan), "not finite"),
        (_changed("0.parameters", lambda a: a.astype(np.float64)), "float32"),
        (_changed("0.returns", lambda a: a + 1), "are not those of the row"),
        (_changed("0.mean", lambda a: a[:1]), "of shape"),
        (_without("0.scale"), "lacks scale"),
        (_changed("0.scale", lambda a: -a), "or more"),
        (_changed("0.scale", lambda a: 0 * a + 1e-200), "or more"),
        (lambda arrays: arrays.update({"0.reference": np.ones((2, 3))}), "0.reference"),
    ],
)
def test_arrays_that_do_not_fit_a_row_are_refused(
    board: Path, change: Callable[[Any], None], words: str
) -> None:
    edit_policies(board, change)
    with pytest.raises(UsageError, match=words):
        replayed(board)


def _header(shape: Any) -> bytes:
    return _framed({"0.parameters": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}, 4)


def _framed(header: Any, size: int = 0) -> bytes:
    text = json.dumps(header)
    return len(text).to_bytes(8, "little") + text.encode() + bytes(size)


class _Trap:
    """Its pickle makes a folder when it is loaded."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("trap",)


CONTENTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "truncated": lambda content: content[:-7],
    "of another row": lambda content: content.replace(b"#", b"%", 1),
    "pickle": lambda _: pickle.dumps(_Trap()),
    "zip bomb": lambda _: _zipped(),
    "long header": lambda _: b"\xff" * 8 + b"{}",
    "huge shape": lambda _: _header([2**40, 2**20]),
    "overflowing shape": lambda _: _header([2**63, 2**63]),
    "negative shape": lambda _: _header([-1]),
    "shape of text": lambda _: _header("4"),
    "null metadata": lambda _: _framed({"__metadata__": None}),
}


def _zipped() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0.parameters", bytes(10**6))
    return content.getvalue()


def refused(esbench: Run, name: str, place: Path, *words: str) -> None:
    """Every command that takes the row ends with exit code 2, one sentence and no new file."""
    start = ["--set", f"init_from={name}", "--out", "new"]
    commands = [
        ["eval", name], ["render", name], ["export", name],
        ["run", "--env", "doubles:Walk-v0", "--algorithm", "snes", "--seeds", "0", *start],
    ]  # fmt: skip
    before = files(place)
    for command in commands:
        code, _, error = esbench(*command, "--trust")
        assert (code, error.count("\n")) == (2, 1), (command, error)
        assert all(word in error for word in words), (command, error)
    with pytest.raises(UsageError):
        load_policy(name, trust=True)
    assert files(place) == before


@pytest.mark.parametrize(
    ("content", "fitting"), [*((name, True) for name in CONTENTS), ("truncated", False)]
)
def test_what_is_no_policy_file_is_one_sentence_of_every_command(
    esbench: Run, board: Path, tmp_path: Path, content: str, fitting: bool
) -> None:
    (path,), (policies,) = board.glob("*.json"), policies_folder(board).iterdir()
    wrong = CONTENTS[content](policies.read_bytes())
    policies.write_bytes(wrong)
    if fitting:
        edit_row(board, policies=hashlib.sha256(wrong).hexdigest())
    refused(esbench, "doubles:Walk-v0/openai_es", tmp_path, policies.name)
    for command in (["verify", "--replay", str(path), "--trust"], ["list", "--policies-of", WALK]):
        code, _, error = esbench(*command)
        assert (code, error.count("\n"), policies.name in error) == (2, 1, True), error


@pytest.mark.parametrize(
    "name",
    [
        "../doubles:Walk-v0/openai_es", "doubles:Walk-v0/../openai_es", "/tmp/Walk-v0/openai_es",
        "doubles:Walk-v0/..", "../../etc/passwd", "doubles:Walk-v0/openai_es/seed-9",
        "doubles:Walk-v0/openai_es#..", "doubles:Walk-v0/openai_es/seed-0/../seed-1",
        "doubles:Walk-v0/openai_es/seed-" + 30 * "9", "doubles:Walk-v0/\x1b[31m",
        "doubles:Walk-v0/a\nb", "doubles:Walk-v0/a\0b", "doubles:Walk-v0/" + 5000 * "a",
    ],
)  # fmt: skip
def test_a_name_that_is_no_row_is_one_sentence_of_every_command(
    esbench: Run, board: Path, tmp_path: Path, name: str
) -> None:
    refused(esbench, name, tmp_path)
    code, _, error = esbench("list", "--policies-of", name)
    assert (code, error.count("\n"), "\x1b" in error) == (2, 1, False)


def test_the_command_plays_the_policies_of_a_file_a_sample_or_all(
    esbench: Run, board: Path
) -> None:
    (path,) = board.glob("*.json")
    whole, one = ["--leaderboard", str(board)], "identical: 1 trial, every return"
    every = "identical: 4 trials, every return"
    for choice, words in (
        ([str(path)], every), (whole, every), ([*whole, "--sample", "1"], one),
        ([*whole, "--env", "doubles:Walk-v0"], every),
    ):  # fmt: skip
        code, out, err = esbench("verify", "--replay", "--trust", *choice)
        assert (code, words in " ".join(out.split())) == (0, True), err
    (policies,) = policies_folder(board).iterdir()
    code, _, err = esbench("verify", "--replay", str(policies))
    assert (code, "expected the row's own JSON file" in err) == (2, True)
    edit_row(board, policies=None)
    assert esbench("verify", "--replay", "--trust", str(path))[0] == 2


def test_the_first_episodes_can_be_played_alone(esbench: Run, board: Path) -> None:
    (path,) = board.glob("*.json")
    replay = ["verify", "--replay", "--trust", str(path)]
    recorded = read_entry(path).spec["evaluation"]["episodes"]
    for episodes, words in (
        ("2", "8 held-out episodes of"), ("1", "identical: 4 trials, the first returns"),
        (str(recorded + 1), "identical: 4 trials, every return"),
    ):  # fmt: skip
        code, out, err = esbench(*replay, "--episodes", episodes)
        assert (code, words in " ".join(out.split())) == (0, True), out + err
    for wrong in (["--episodes", "0"], ["--episodes", "-1"], ["--episodes", "two"]):
        code, _, error = esbench(*replay, *wrong)
        assert (code, "episodes" in error) == (2, True)
    code, _, error = esbench("verify", "--sample", "1", "--episodes", "2")
    assert (code, error.count("\n"), "--replay" in error) == (2, 1, True)
    edit_policies(board, negate(1))
    assert esbench(*replay, "--episodes", "2")[0] == 1


def explode(arrays: dict[str, Any]) -> None:
    arrays["2.parameters"] = np.full_like(arrays["2.parameters"], 3e38)


@pytest.mark.parametrize(
    ("change", "numpy", "episodes", "outcome", "words"),
    [
        (negate(2), None, None, "different", "so every return must be equal"),
        (negate(2), "1.0", None, "no significant difference", "p = "),  # five episodes
        (negate(0, 1, 2, 3), "1.0", None, "different", "for a difference of the returns of 4"),
        (negate(0, 1, 2, 3), "1.0", 1, "different", "which takes 7 episodes or more"),
        (explode, "1.0", None, "different", "returns that were finite are not finite now"),
        (explode, None, 1, "different", "so every return must be equal"),
    ],
)
def test_another_return_is_different_or_is_tested_where_versions_differ(
    board: Path, change: Any, numpy: str | None, episodes: int | None, outcome: str, words: str
) -> None:
    edit_policies(board, change, numpy)
    (found,) = replayed(board, episodes)
    assert found.outcome.value == outcome
    assert words in " ".join(sentences(found))


@pytest.mark.parametrize(
    ("before", "now", "differs"),
    [
        ([350.0] * 100, [350.0 + 1e-10] * 100, False),  # rounding, all to one side
        (list(range(100)), [n + 1e-5 for n in range(100)], False),
        ([7.0] * 100, [7.0 + 1e-10] * 100, False),
        (list(range(100)), [n + 1.0 for n in range(100)], True),
        (list(range(100)), [n + (-1.0) ** n for n in range(100)], False),  # chaos
        ([500.0] * 40, [9.0, 10.0] * 20, True),
    ],
)
def test_a_difference_is_one_of_many_episodes_to_one_side(
    before: list[float], now: list[float], differs: bool
) -> None:
    pair = np.array(before), np.array(now)
    p_value = p_of_pairs([pair], [pair])
    assert p_value is not None
    assert (p_value <= LEVEL) == differs
    other = np.zeros(100), np.zeros(100)
    assert not differs or (p_of_pairs([pair, *[other] * 9], [pair]) or 0.0) <= LEVEL


def test_one_episode_played_many_times_is_one() -> None:
    pair = np.full(100, 7.0), np.full(100, 9.0)
    assert p_of_pairs([pair] * 3, [pair] * 3) is None
    assert (p_of_pairs([pair] * 10, [pair] * 10) or 1.0) <= LEVEL


@pytest.mark.parametrize("rows", [1, 3, 20, 200])
def test_p_values_are_corrected_for_the_number_of_rows(rows: int) -> None:
    least = fewest_episodes(rows)
    before = np.arange(least, dtype=np.float64)
    now = before + np.ones(least)
    worse = [(before, now)]
    assert p_of_pairs(worse, worse, rows) == 4 * rows / 2**least <= LEVEL < 8 * rows / 2**least
    assert p_of_pairs([(before[1:], now[1:])], [(before[1:], now[1:])], rows) is None


def test_a_seed_that_cannot_be_played_is_no_success(
    board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_policies(board, negate(2), "1.0")
    real = published_policy

    def fails(spec: Any, arrays: Any) -> Any:
        if spec.seed == 0:
            raise TrainingError("it hangs")
        return real(spec, arrays)

    monkeypatch.setattr("esbench.publish.replay.published_policy", fails)
    (found,) = replayed(board)
    assert found.outcome is RerunOutcome.FAILED


def test_a_seed_without_a_published_policy_is_named(board: Path) -> None:
    edit_policies(board, lambda arrays: [arrays.pop(k) for k in [*arrays] if k.startswith("3.")])
    (found,) = replayed(board)
    assert "identical: 3 trials" in sentences(found)[0]
    assert "no policy is published of seed 3" in sentences(found)[0]


def test_a_row_is_a_policy_to_load_render_and_export(
    esbench: Run, board: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (path,) = board.glob("*.json")
    entry, name = read_entry(path), "doubles:Walk-v0/openai_es"
    for row in (name, f"{name}#{entry.variant[:4]}", f"{name}/"):
        policy = load_policy(row, seed=2, trust=True)
        env, (first, *_) = policy.make_environment(), policy.held_out_seeds
        rewards = sum(reward for reward, _ in episode(policy, env, first, row, {}))
        assert rewards == find_policy(row, 2).arrays["returns"][0]
        assert policy.generation == entry.runs[2].generations
    default: Any = load_policy(name)
    assert np.array_equal(default.parameters, find_policy(name, 0).arrays["parameters"])
    assert export(name, trust=True)["environment"] == "doubles:Walk-v0"
    assert (tmp_path / "policy.pt2").exists()
    for wrong in (f"{name}#0", "doubles:Walk-v0/snes", "CartPole-v1/openai_es"):
        with pytest.raises(UsageError, match="no row with|more than one"):
            load_policy(wrong)
    with pytest.raises(UsageError, match=f"did you mean {name!r}"):
        load_policy("doubles:Walk-v0/opnai_es")
    assert "identical to the recorded score" in esbench("eval", name, "--seed", "2", "--trust")[1]
    (tmp_path / "out").mkdir()
    code, _, error = esbench("verify", "--replay", "out")
    assert (code, error.count("\n"), "policies of" in error) == (2, 1, True)
    for options in ({"seed": 7}, {"generation": 3}, {"which": "best"}):
        with pytest.raises(UsageError, match="expected"):
            load_policy(name, trust=True, **options)
    assert esbench("export", name, "--seed", "7", "--trust")[0] == 2
    assert esbench("render", name, "--trust")[0] == 2  # this environment has no picture
    monkeypatch.setattr(policies_of_rows, "PLACES", [tmp_path / "nothing"])
    with pytest.raises(UsageError, match="expected a checkout of esbench"):
        load_policy(name)


def test_rows_are_listed_with_their_policies_or_with_the_reason(esbench: Run, board: Path) -> None:
    (path,) = board.glob("*.json")
    entry = read_entry(path)
    (row,) = policies_of("doubles:Walk-v0").to_dict("records")
    policy: Any = load_policy(row["name"], trust=True)
    assert row["parameters"] == policy.parameters.size
    assert (row["score"], row["policies"]) == (entry.to_cell().score, "seeds 0-3")
    code, out, _ = esbench("list", "--policies-of", "doubles:Walk-v0")
    assert (code, row["name"] in out, "seeds 0-3" in out) == (0, True, True)
    other = "--leaderboard", str(board.rename(board.parent / "other"))
    assert esbench("list", "--policies-of", "doubles:Walk-v0", *other)[:2] == (0, out)
    assert esbench("list", *other)[0] == 2
    Path(other[1]).rename(board)
    for left_out, words in ((None, "not yet"), (LeftOut.TOO_LARGE, "too large")):
        edit_row(board, policies=None, policies_left_out=left_out)
        assert policies_of("doubles:Walk-v0").policies.tolist() == [words]
        assert leaderboard(board).policies.tolist() == [words]
        code, _, error = esbench("verify", "--replay", str(path))
        assert (code, words.removesuffix(" yet") in error) == (2, True)
    code, _, error = esbench("list", "--policies-of", "doubles:Wlak-v0")
    assert (code, "did you mean 'doubles:Walk-v0'" in error) == (2, True)


@pytest.mark.parametrize(("suffix", "seed"), [("/seed-2", 2), ("", 0)])
def test_training_starts_from_the_policy_of_a_row(board: Path, suffix: str, seed: int) -> None:
    (path,) = board.glob("*.json")
    name, entry = "doubles:Walk-v0/openai_es", read_entry(path)
    found = find_policy(f"{name}{suffix}")
    with make_trainer(
        "snes", env="doubles:Walk-v0", seed=seed, workers=0, init_from=name + suffix, trust=True,
        evaluation={"episodes": 12},
    ) as trainer:  # fmt: skip
        start = trainer.spec.init_from
        assert start is not None
        assert start.trial == f"{name}#{entry.variant}/seed-{seed}"
        assert start.digest == entry.cell.trials[seed].last_digest
        assert trainer.evaluate().returns == pytest.approx(found.arrays["returns"], rel=1e-5)
        trainer.train(env_steps=50)
        state: Any = trainer.state_dict()
    if trainer.spec.policy and trainer.spec.policy.settings.normalize_observations:
        steps = entry.runs[seed].env_steps
        assert min(each["count"] for each in state["statistics"].values()) >= steps


def test_random_published_policies_play_their_episodes(esbench: Run) -> None:
    seed = str(secrets.randbelow(2**31))  # others in every run
    chosen = ["--sample", "3", "--seed", seed, "--episodes", "20"]
    code, out, err = esbench("verify", "--replay", *chosen, "--leaderboard", str(LEADERBOARD))
    assert code == 0, f"--seed {seed}: {out}{err}"  # with the names of the rows


def test_the_published_policies_are_small_and_those_of_the_rows() -> None:
    files = sorted(policies_folder(LEADERBOARD).iterdir())
    rows = {path: read_entry(LEADERBOARD / f"{path.stem}.json") for path in files}
    assert sum(path.stat().st_size for path in files) < 40e6
    for path, entry in rows.items():
        assert {*read_policies(entry, path)} == {*entry.seeds}
    assert all(
        (policies_folder(LEADERBOARD) / f"{path.stem}.safetensors").exists()
        == (b'"policies":' in path.read_bytes())
        for path in LEADERBOARD.glob("*.json")
    )


def test_a_name_of_a_row_is_on_one_line_of_a_terminal(
    esbench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(policies_of_rows, "PLACES", [LEADERBOARD])
    _, out, _ = esbench("list", "--policies-of", "HalfCheetah-v5")
    listed = [line.split()[0] for line in out.splitlines() if line.startswith("HalfCheetah")]
    assert listed == [row.name for row in zoo("HalfCheetah-v5", LEADERBOARD)]


def test_a_name_of_several_rows_is_that_of_the_best_one() -> None:
    several = [row for row in zoo("Pendulum-v1") if row.seeds and "/genetic#" in row.name]
    assert len(several) == 2
    scores = {row.entry.variant: row.cell.score for row in several}
    best = find_policy("Pendulum-v1/genetic").entry.variant
    assert scores[best] == max(scores.values()) > min(scores.values())
    (other,) = {*scores} - {best}
    assert find_policy(f"Pendulum-v1/genetic#{other}").entry.variant == other
