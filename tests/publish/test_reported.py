"""Scores that others report: the tables that are read, what is refused, and where they stand."""

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from checkout import ROOT
from command_line import Run
from fake_entries import fake_suite, write_board

import esbench as package
from esbench.publish.leaderboard.import_scores import read_scores
from esbench.publish.leaderboard.reported_rows import selected_reported
from esbench.results.reported_scores import read_reported, task_of

PUBLISHED = ROOT / "results" / "published"
RL_ZOO = """
## Performance of trained agents

"M" stands for Million (1e6)

|algo |     env_id      |mean_reward|std_reward|n_timesteps|eval_timesteps|eval_episodes|
|-----|-----------------|----------:|---------:|-----------|-------------:|------------:|
|ars  |HalfCheetah-v3   |   4000.500|    10.250|12M        |        150000|          150|
|ars  |Hopper-v5        |   1234.000|     5.730|1.5M       |        150000|          150|
|ppo  |AntBulletEnv-v0  |   -100.000|     0.000|500k       |        150000|          150|
"""
SLM_LAB = """
#### 3.2 HalfCheetah-v5

**Settings**: max_frame 10e6 | num_envs 16 | max_session 4 | log_frequency 1e4

| Algorithm | Status | MA | SPEC_FILE | SPEC_NAME |
|-----------|--------|-----|-----------|-----------|
| PPO | \u2705 | 6000.50 | [a/b.yaml](../a/b.yaml) | ppo_arc |
| [DDQN+PER](https://x.org) | \u274c | **-12** | c | ddqn |
| A2C | | N/A | c | a2c |

| ENV | SPEC_NAME | MAX_FRAME |
|-----|-----------|-----------|
| HalfCheetah-v5 | ppo_arc | 4e6 |

| ENV | MA | SPEC_NAME |
|-----|-----|-----------|
| ALE/Pong-v5 | 16.69 | ppo_atari |
| | \u274c 4.40 | crossq_atari |
"""
CSV = """environment,algorithm,seed,steps,score
Hopper-v4,mine,0,500,10
Hopper-v4,mine,0,1000,30
Hopper-v4,mine,1,1000,50
"""


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (RL_ZOO, [
            ("HalfCheetah-v3", "ars", 4000.5, 10.25, 12_000_000, 150, 1),
            ("Hopper-v5", "ars", 1234.0, 5.73, 1_500_000, 150, 1),
            ("AntBulletEnv-v0", "ppo", -100.0, 0.0, 500_000, 150, 1),
        ]),
        (SLM_LAB, [
            ("HalfCheetah-v5", "PPO", 6000.5, None, 4_000_000, None, 4),
            ("HalfCheetah-v5", "DDQN+PER", -12.0, None, 10_000_000, None, 4),
            ("ALE/Pong-v5", "ppo_atari", 16.69, None, 10_000_000, None, 4),
            ("ALE/Pong-v5", "crossq_atari", 4.4, None, 10_000_000, None, 4),
        ]),
        (CSV, [("Hopper-v4", "mine", 40.0, pytest.approx(200**0.5), 1000, None, 2)]),
    ],
    ids=["rl-zoo", "slm-lab", "csv"],
)  # fmt: skip
def test_tables_are_read_as_they_are_published(text: str, rows: list[tuple[Any, ...]]) -> None:
    found = read_scores(text, "file")
    assert [tuple(row.model_dump().values()) for row in found.rows] == rows
    assert found.left_out == [
        text.splitlines().index(line) + 1 for line in text.splitlines() if "N/A" in line
    ]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (RL_ZOO.replace("mean_reward", "reward"), 8, "mean_reward"),
        (RL_ZOO.replace("4000.500", "many"), 8, "'many'"),
        (RL_ZOO.replace("4000.500", "nan"), 8, "'nan'"),
        (RL_ZOO.replace("4000.500", "1e999"), 8, "'1e999'"),
        (RL_ZOO.replace("10.250", "-1"), 8, "deviation"),
        (RL_ZOO.replace("12M", "0"), 8, "n_timesteps"),
        (RL_ZOO.replace("|ars  |HalfCheetah-v3", "|=1+1 |HalfCheetah-v3"), 8, "'=1+1'"),
        (RL_ZOO.replace("HalfCheetah-v3 ", "<b>Half</b>"), 8, "'<b>Half</b>'"),
        (RL_ZOO.replace("HalfCheetah-v3", "HalfChetah-v3"), 8, "HalfCheetah"),
        (RL_ZOO.replace("12M        |", ""), 8, "6 cells"),
        (RL_ZOO + RL_ZOO.splitlines()[7], 11, "line 8 again"),
        (SLM_LAB.replace("#### 3.2 HalfCheetah-v5", "#### 3.2 More"), 8, "heading"),
        (SLM_LAB.replace("6000.50", "good"), 8, "'good'"),
        (RL_ZOO.replace("HalfCheetah-v3", "halfcheetah-v3"), 8, "HalfCheetah"),
        (CSV.replace("score", "result", 1), 1, "'score'"),
        (CSV.replace("1000,50", '1000,"5,0"'), 4, "'5,0'"),  # 5.0 or 50
        (CSV.replace("1000,50", "1000,x"), 4, "'x'"),
        (CSV.replace("mine,1,", "mine,one,"), 4, "'one'"),
        (CSV.replace("1,1000,50", "0,1000,50"), 4, "line 3 again"),
        (CSV.replace("1,1000,50", "1,900,50"), 4, "equal ends"),
        (CSV.replace("1,1000,50", "1,1000,50,7"), 4, "6 cells"),
        (CSV.replace("mine", "@SUM(A1)"), 2, "'@SUM(A1)'"),
        (CSV.replace("mine", '"a\nb"'), 3, "algorithm"),
        ("", 1, "no column"),
        ("hello", 1, "no column"),
    ],
)
def test_bad_tables_are_one_sentence_with_the_line(
    esbench: Run, tmp_path: Path, text: str, line: int, words: str
) -> None:
    (tmp_path / "table.md").write_text(text)
    code, out, err = esbench("import", "table.md")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"table.md, line {line}: " in err
    assert words in err
    assert not Path("results").exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--source", "javascript:alert(1)"],
        ["--source", "/home/me/table.md"],
        ["--measure", "<b>mean</b>"],
        ["--versions", "=1+1"],
        ["--layout", "csv"],
        ["--name", "../evil"],
        ["--name", ".hidden"],
    ],
)
def test_bad_remarks_write_nothing(esbench: Run, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "table.md").write_text(RL_ZOO)
    code, out, err = esbench("import", "table.md", *options)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert not Path("results").exists()


def test_a_file_is_replaced_on_purpose_only(esbench: Run, tmp_path: Path) -> None:
    (tmp_path / "zoo.md").write_text(RL_ZOO)
    address = "https://me:secret@example.org/zoo.md"
    code, _, err = esbench("import", "zoo.md", "--source", address, "--out", "p")
    assert (code, "AntBulletEnv-v0" in err) == (0, True)
    (first, *_) = read_reported(tmp_path / "p")
    assert first.table.source == "https://me:***@example.org/zoo.md"
    before = Path("p/zoo.json").read_bytes()
    assert esbench("import", "zoo.md", "--out", "p")[0] == 2
    assert Path("p/zoo.json").read_bytes() == before
    assert esbench("import", "zoo.md", "--out", "p", "--replace")[0] == 0
    assert Path("p/zoo.json").read_bytes() != before


@pytest.mark.parametrize(
    ("environment", "task"),
    [
        ("HalfCheetah-v5", "HalfCheetah"),
        ("mine:Boat-v0", "mine:Boat"),
        ("esbench/Sphere-v0", "esbench/Sphere"),
        *dict.fromkeys(
            [
                "esbench/Pong-v5", "ALE/Pong-v5", "ale_py:PongNoFrameskip-v4", "PongNoFrameskip-v4",
                "esbench/PongDeterministic-v5",
            ],
            "esbench/Pong",
        ).items(),
        ("esbench/Pong-ram-v5", "esbench/Pong-ram"),  # an observation of its own
        ("ALE/Pong-ram-v5", "esbench/Pong-ram"),
    ],
)  # fmt: skip
def test_reported_scores_of_a_game_are_found_by_all_names_of_it(
    environment: str, task: str
) -> None:
    reported = read_reported(PUBLISHED)
    found = {row.reported.environment for row in selected_reported(reported, [environment], [])}
    assert (task_of(environment), "ALE/Pong-v5" in found) == (task, task == "esbench/Pong")
    pong = next(row for row in reported if row.reported.environment == "ALE/Pong-v5")
    assert pong.is_of(environment) == (environment in {"ALE/Pong-v5", "esbench/Pong-v5"})


@pytest.fixture
def board(tmp_path: Path, esbench: Run) -> Path:
    """A leaderboard of two rows beside reported scores."""
    entries = [e for e in fake_suite("mujoco-mlp") if e.cell.environment == "HalfCheetah-v5"][:2]
    for name, text in (("zoo.md", RL_ZOO), ("lab.md", SLM_LAB), ("own.csv", CSV)):
        (tmp_path / name).write_text(text)
        assert esbench("import", name, "--out", "published")[0] == 0
    return write_board(tmp_path / "board", entries)


def test_reported_scores_stand_beside_ours_and_change_no_number(board: Path, esbench: Run) -> None:
    def printed(*words: str) -> str:
        code, out, err = esbench("leaderboard", "board", *words)
        assert (code, err) == (0, "")
        return out

    def rows(text: str) -> list[list[str]]:
        lines = [line for line in text.splitlines() if line.startswith("|")]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]

    plain, whole = (rows(printed("--format", "markdown", *w)) for w in ([], ["--reported"]))
    assert whole[:2] == plain
    assert [row[0] for row in whole[2:5]] == ["HalfCheetah-v5"] * 2 + ["HalfCheetah-v3"]
    assert all("reported" in row[1] and row[-1] == "-" for row in whole[2:])
    assert len(whole) == 2 + 3 + 4 + 1
    notes = printed("--reported", "--format", "markdown")
    assert "HalfCheetah-v3 for HalfCheetah-v5" in notes
    frame = pd.read_csv(io.StringIO(printed("--reported", "--format", "csv")))
    own = pd.read_csv(io.StringIO(printed("--format", "csv")))
    pd.testing.assert_frame_equal(frame[frame.verified][own.columns], own, check_dtype=False)
    assert frame[~frame.verified].score.tolist()[:1] == [16.69]
    content = json.loads(printed("--reported", "--format", "json"))
    assert [row["verified"] for row in content["rows"]].count(True) == 2
    page = printed("--reported", "--format", "html")
    assert 'id="reported"' in page
    assert 'id="reported"' not in printed("--format", "html")
    found = package.leaderboard(board, reported=True, env="HalfCheetah-v5")
    assert found.environment[~found.verified].tolist() == [
        *("HalfCheetah-v3", "HalfCheetah-v5", "HalfCheetah-v5")
    ]


@pytest.mark.parametrize(
    ("options", "algorithms"),
    [
        ("--env HalfCheetah-v3", {"ars", "PPO", "DDQN+PER"}),
        ("--env ALE/Pong-v5", {"ppo_atari", "crossq_atari"}),
        ("--algorithm crossq_atari", {"crossq_atari"}),
        ("--env HalfCheetah-v5 --algorithm openai_es --algorithm PPO", {"openai_es", "PPO"}),
        (
            "--env HalfCheetah-v5 --env AntBulletEnv-v0 --algorithm openai_es --algorithm ppo",
            {"openai_es", "PPO", "ppo"},
        ),
    ],
)
def test_names_that_only_reported_scores_have_select_them(
    board: Path, esbench: Run, options: str, algorithms: set[str]
) -> None:
    words = options.split()
    code, out, _ = esbench("leaderboard", "board", "--reported", "--format", "json", *words)
    rows = json.loads(out)["rows"]
    assert (code, {row["algorithm"] for row in rows}) == (0, algorithms)
    code, out, _ = esbench("leaderboard", "board", "--reported", *words)
    foreign = [row for row in rows if not row["verified"]]
    assert (code, out.count("(reported [")) == (0, len(foreign))
    code, _, err = esbench("leaderboard", "board", *words)
    assert (code, err.count("\n")) == (2, 1)
    code, out, _ = esbench("leaderboard", "board", "--reported", *words, "--algorithm", "crosq")
    assert (code, out) == (2, "")  # a typo beside them


def test_the_minus_sign_of_a_typesetter_is_one() -> None:
    found = read_scores(CSV.replace("1000,50", "1000,\N{MINUS SIGN}50"), "file")
    assert [row.score for row in found.rows] == [-10.0]


def test_without_reported_scores_the_option_says_so(esbench: Run, tmp_path: Path) -> None:
    write_board(tmp_path / "board", fake_suite("mujoco-mlp")[:1])
    code, out, err = esbench("leaderboard", "board", "--reported")
    assert (code, out, "esbench import" in err) == (2, "", True)
    Path("published").mkdir()
    Path("published/a.json").write_text('{"format": 1, "rows": []}')
    assert esbench("leaderboard", "board", "--reported")[:2] == (2, "")
