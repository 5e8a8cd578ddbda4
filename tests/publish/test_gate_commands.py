import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import Run, files
from fake_trials import GOOD, write_scores

from esbench.store.trial_folder import TrialFolder

TRAIN = [
    "run", "--env", "CartPole-v1", "--algorithm", "openai_es", "--seeds", "0-2",
    "--env-steps", "500", "--workers", "0", "--quiet",
    "--set", "algorithms.openai_es.population_size=4", "--set", "evaluation.episodes=3",
]  # fmt: skip


def test_the_same_run_passes_and_fresh_seeds_decide_on_another(
    esbench: Run, tmp_path: Path
) -> None:
    assert esbench(*TRAIN, "--out", "base")[0] == 0
    for path in Path("base").rglob("trial.json"):
        recorded = json.loads(path.read_text())
        assert recorded["inherited"] == ["sigma", "learning_rate", "weight_decay"]
        given = {"population_size", *recorded["inherited"]}
        settings = {*recorded["spec"]["algorithm"]["settings"]}
        assert settings & {*recorded["defaults"]} == settings - given
    code, out, _ = esbench("baseline", "base", "--out", "new/b.json", "--margin", "0.05")
    assert code == 0
    assert "new/b.json" in out
    assert re.search("5 seeds .*: openai_es on CartPole-v1", out)  # with 3, p is at least 1/20
    assert esbench(*TRAIN, "--out", "same")[0] == 0
    code, out, err = esbench("check", "same", "--baseline", "new/b.json", "--exact")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "PASSED: no regression (1 no worse)"
    assert "identical" in out
    # Other seeds than the baseline's, so that nothing is identical and three seeds cannot tell.
    other = [word if word != "0-2" else "5-7" for word in TRAIN]
    assert esbench(*other, "--out", "first")[0] == 0
    assert esbench("check", "first", "--baseline", "new/b.json")[0] == 4
    again = ["check", "first", "--baseline", "new/b.json", "--until-conclusive"]
    code, out, _ = esbench(*again, "--max-seeds", "8", "--workers", "0")
    assert code in (0, 1, 4)
    assert "look at 8 seeds: 5 trials" in out
    for seed in range(5, 13):
        folder = TrialFolder(tmp_path / f"first/CartPole-v1/openai_es/seed-{seed}")
        assert folder.is_done
        assert folder.spec().budget.env_steps == 500
    code_again, out_again, _ = esbench(*again, "--max-seeds", "8")  # nothing is left to train
    assert (code_again, out_again.splitlines()[-1]) == (code, out.splitlines()[-1])
    code, _, err = esbench(*again, "--max-seeds", "7")
    assert (code, len(err.splitlines())) == (2, 1)


def test_a_drop_fails_and_is_written_in_every_format(esbench: Run, tmp_path: Path) -> None:
    write_scores(tmp_path / "base", GOOD)
    write_scores(tmp_path / "bad", [score - 100 for score in GOOD])
    write_scores(tmp_path / "weak", [9.0 + number for number in range(8)])  # random: 22.6
    said = [
        esbench("baseline", *words)
        for words in (("weak", "--out", "w"), ("base", "--out", "b.json"))
    ]
    assert [code for code, _, _ in said] == [0, 0]
    assert ["actions, so a check" in out for _, out, _ in said] == [True, False]
    files = ["--markdown", "new/c.md", "--junit", "c.xml", "--json", "c.json"]
    code, out, _ = esbench("check", "bad", "--baseline", "b.json", *files)
    assert code == 1
    assert "openai_es on CartPole-v1: regression: 20.9% of the range lower, p < 0.001" in out
    assert (tmp_path / "new" / "c.md").read_text().startswith("### esbench check: FAILED")
    assert ElementTree.parse(tmp_path / "c.xml").getroot()[0].get("failures") == "1"
    assert json.loads((tmp_path / "c.json").read_text())["exit_code"] == 1
    # A measured drop of 20.9 % excludes a drop of 30 %, but not one of 21.5 %.
    for margin, expected in (("0.3", 0), ("0.215", 4)):
        assert esbench("check", "bad", "--baseline", "b.json", "--margin", margin)[0] == expected
    lenient = ["--margin", "0.215", "--allow-inconclusive"]
    assert esbench("check", "bad", "--baseline", "b.json", *lenient)[0] == 0


@pytest.mark.parametrize("format_", ["markdown", "json", "junit", "badge"])
def test_other_formats_than_text_are_alone_on_standard_output(
    esbench: Run, tmp_path: Path, format_: str
) -> None:
    write_scores(tmp_path / "base", GOOD)
    assert esbench("baseline", "base", "--out", "b.json")[0] == 0
    words = ("check", "base", "--baseline", "b.json", "--format", format_)
    code, out, err = esbench(*words, "--until-conclusive")
    assert (code, err) == (0, "")
    match format_:
        case "markdown":
            assert out.startswith("### esbench check: PASSED")
        case "junit":
            assert ElementTree.fromstring(out.encode())[0].get("failures") == "0"
        case _:
            assert json.loads(out)


BAD = {
    "check out --baseline none.json": "no file 'none.json'",
    "check none --baseline b.json": "no folder 'none'",
    "check out --baseline b.json --format bagde": "bagde",
    "check out --baseline b.json --max-seeds 16": "--max-seeds 16",
    "check out --baseline b.json --workers 0": "--until-conclusive",
    "check out --baseline b.json --json b.json": "--json b.json is the file of --baseline",
    "check out --baseline b.json --json x --junit x": "--json x is the file of --junit",
    "check out --baseline bb.json": "did you mean 'b.json'",
    "baseline out --out x.json --power 1.5": "--power 1.5: expected a share",
    "baseline out --out x.json --margin 5": "margin = 5.0: expected a share",
    "baseline out --out x.json --power 0.9 --margin 0.1": "--power with --margin",
    "check out --baseline b.json --junit out --json new/c.json": "out is a folder; expected a file",
    "check out --baseline b.json --alpha 1e-7": "alpha = 1e-07 for 1 cell: expected about 1e-05",
    "baseline out --out .": ". is a folder; expected a file",
    "baseline out --out b.json": "--replace",
}


def test_bad_input_is_one_sentence_and_changes_nothing(esbench: Run, tmp_path: Path) -> None:
    write_scores(tmp_path / "out", GOOD[:3])
    assert esbench("baseline", "out", "--out", "b.json")[0] == 0
    before = files(tmp_path)
    for command, words in BAD.items():
        code, _, err = esbench(*command.split())
        assert (code, len(err.splitlines())) == (2, 1), command
        assert words in err
    assert files(tmp_path) == before


def test_suggestions_come_from_the_spread_of_the_scores(
    esbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("esbench.publish.gate.choose_margin.CHECKS", 40)
    write_scores(tmp_path / "narrow", GOOD)
    write_scores(tmp_path / "wide", [score - 300 * (i % 4 == 0) for i, score in enumerate(GOOD)])
    shares = {}
    for name in ("narrow", "wide"):
        code, out, _ = esbench("baseline", name, "--suggest")
        rows = [line.split() for line in out.splitlines() if " openai_es on " in f" {line}"]
        assert (code, [row[3] for row in rows]) == (0, ["8", "10", "16", "32"])
        shares[name] = [int(row[4].rstrip("%")) for row in rows]
    assert min(shares["narrow"]) > 90
    assert max(shares["wide"]) < 80
    assert not (tmp_path / "b.json").exists()
    code, out, _ = esbench("baseline", "narrow", "--out", "b.json", "--suggest", "--power", "0.9")
    assert (code, (tmp_path / "b.json").exists()) == (0, True)
    assert "90%" in out
    for wrong in ((), ("--suggest", "--power", "1.5")):
        code, _, err = esbench("baseline", "narrow", *wrong)
        assert (code, len(err.splitlines())) == (2, 1)
