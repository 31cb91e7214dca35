from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from simulated_judges import UNREADABLE, answer
from tables import every_row

from cxrlab.cli.evaluation import gates
from cxrlab.cli.main import main
from cxrlab.core.errors import ConfigError
from cxrlab.core.tables import as_text
from cxrlab.evaluation.score_tables import score_parts

ONE = {"low": 0.1, "high": 0.3, "n": 9, "undefined": 1, "direction": "higher"}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two text files of three reports each, and a second prediction that is the reference itself."""
    (tmp_path / "r.txt").write_text("Small left pleural effusion.\nThe lungs are clear.\nLarge pneumothorax.\n")
    (tmp_path / "p.txt").write_text("Small right pleural effusion.\nThe lungs are clear.\n\n")
    (tmp_path / "same.txt").write_text((tmp_path / "r.txt").read_text())
    return tmp_path


def score(folder: Path, *words: str) -> int:
    return main(["score", "--references", str(folder / "r.txt"), "--quiet", *words])


def test_a_table_with_floors_and_a_run(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(files, "--predictions", str(files / "p.txt"), "--out", str(files / "run")) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 pairs: 2 scored, 1 empty candidate")
    assert "bleu4:coco" in out and "best floor" in out and "more metrics in scores.json" in out
    assert {"scores.json", "per_study.jsonl", "tallies.npz"} <= {path.name for path in (files / "run").iterdir()}


def test_json_is_the_content_of_scores_json(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--predictions",
        str(files / "p.txt"),
        "--out",
        str(files / "run"),
        "--metrics",
        "bleu1:coco",
        "--metrics",
        "rules",
    )
    assert score(files, *words, "--json", "--no-floors") == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((files / "run/scores.json").read_text())
    assert "bleu1:coco" in found["metrics"] and "clinical:rules" in found["metrics"] and found["floors"] == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--predictions", "nowhere.txt"), "nowhere.txt does not exist"),
        ((), "give --predictions"),
        (("--predictions", "{p}", "--metrics", "blue4:coco"), "there is no metric 'blue4:coco'"),
        (("--predictions", "{p}", "--unit", "image"), "--unit|unit"),
        (("--predictions", "{p}", "--section", "finding"), "not a section"),
        (("--predictions", "{short}"), "both need equally many"),
        (("--predictions", "{p}", "--metrics", ""), "--metrics is empty"),
        (("--predictions", "{p}", "--metrics", " , "), "--metrics is empty"),
        (("--predictions", "{p}", "--metrics", "bleu4:coco", "findings.f1"), "with commas"),
    ],
)
def test_a_mistake_is_one_sentence(
    files: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "short.txt").write_text("one\n")
    places = {"{p}": str(files / "p.txt"), "{short}": str(files / "short.txt")}
    assert score(files, *(places.get(word, word) for word in words)) == 1
    err = capsys.readouterr().err
    assert any(part in err for part in said.split("|")) and len(err.strip().splitlines()) == 1


def test_what_is_missing_is_named_as_it_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "--predictions", "p.txt"]) == 1
    assert capsys.readouterr().err.startswith("cxrlab: --references is missing; for example: cxrlab score ")
    assert main(["metrics", "validate"]) == 1
    assert "--benchmark is missing" in capsys.readouterr().err


def test_scores_that_are_not_kept_are_not_said_to_be(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(files, "--predictions", str(files / "p.txt")) == 0
    out = capsys.readouterr().out
    assert "more metrics; --metrics default" in out and "scores.json" not in out


def test_a_run_that_was_left_as_it_is_says_so(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--predictions", str(files / "p.txt"), "--out", str(files / "run"), "--metrics", "bleu1:coco")
    for said in (False, True):
        assert score(files, *words) == 0
        assert ("was finished before and is unchanged" in capsys.readouterr().out) is said
    validate = ["metrics", "validate", "--benchmark", "phantom", "--n", "5", "--metrics", "bleu1:coco", "--quiet"]
    for said in (False, True):
        assert main([*validate, "--out", str(files / "v")]) == 0
        assert ("was finished before and is unchanged" in capsys.readouterr().out) is said


def test_an_id_cannot_speak_to_the_terminal(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An id from a file is shown in the message; what a terminal would obey in it is not."""
    for name, key in (("r.json", "a\x1b]0;title\x07\x1b[31m"), ("p.json", "b\x9b2J\u202e")):
        (files / name).write_text(json.dumps({key: "x"}))
    words = ["--references", str(files / "r.json"), "--predictions", str(files / "p.json")]
    assert main(["score", *words]) == 1
    err = capsys.readouterr().err
    assert "belongs to a reference" in err and not set(err) & set("\x1b\x07\x9b\u202e")


def test_a_star_marks_what_a_control_reaches() -> None:
    scores = {
        "n": 10,
        "statuses": {"scored": 10},
        "metrics": {
            "up": {**ONE, "value": 0.2},
            "down": {**ONE, "value": 0.2, "direction": "lower"},
            "none": {**ONE, "value": None, "low": None, "high": None},
        },
        "floors": {"empty": {"up": 0.2, "down": 0.3, "none": None}, "other": {"up": 0.1, "down": 0.4, "none": None}},
    }
    lines = as_text(score_parts(scores, 0.95)).splitlines()
    assert "0.200 [0.100, 0.300]" in lines[2] and "0.200 empty *" in lines[2]
    assert "0.300 empty" in lines[3] and "*" not in lines[3]
    assert "–" in lines[4] and lines[5].startswith("* a control")


def test_runs_are_compared_and_a_gate_decides_the_exit_code(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The reference against itself is better; the other way round it fails a narrow gate."""
    for name in ("p", "same"):
        assert score(files, "--predictions", str(files / f"{name}.txt"), "--out", str(files / name)) == 0
    capsys.readouterr()
    worse, better = str(files / "p"), str(files / "same")
    assert main(["compare", worse, better, "--metrics", "rougeL:google", "--quiet"]) == 0
    assert "rougeL:google" in capsys.readouterr().out
    gate = ("--noninferior", "rougeL:google=0.001", "--noninferior", "bleu1:coco=0.001")
    assert main(["compare", better, worse, *gate, "--quiet", "--out", str(files / "compared")]) == 1
    assert capsys.readouterr().out.count("gate NOT ESTABLISHED") == 2
    assert main(["compare", better, worse, *gate, "--quiet", "--minimum-patients", "2"]) == 1
    assert capsys.readouterr().out.count("gate FAIL") == 2
    assert json.loads((files / "compared/comparison.json").read_text())["ok"] is False
    assert main(["compare", worse, better, *gate, "--quiet", "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["baseline"]


@every_row("words", [("m",), ("m=",), ("=0.1",), ("m=0",), ("m=-1",), ("m=nan",), ("m=inf",), ("m=1", "m=2")])
def test_a_gate_needs_a_metric_and_a_margin(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="--noninferior"):
        gates(words)


def test_gates_by_metric() -> None:
    assert gates((" bleu4:coco = 0.02 ",)) == {"bleu4:coco": 0.02}
    assert gates(("bleu4:coco=0.02", "errors.total=.5")) == {"bleu4:coco": 0.02, "errors.total": 0.5}


def test_comparing_asks_for_usable_numbers(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "a", "b", "--trials", "0"]) == 1
    assert "trials=0" in capsys.readouterr().err
    assert main(["compare"]) == 1


def test_metrics_are_listed_with_what_their_numbers_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "ls"]) == 0
    out = capsys.readouterr().out
    assert "bleu4:coco" in out and "-∞ to ∞" in out and "--graphs" in out and "more with --all" in out
    assert main(["metrics", "ls", "--metrics", "bleu4:coco", "--long"]) == 0
    assert "bleu4:coco|" in capsys.readouterr().out
    assert main(["metrics", "ls", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) > 100 and {
        "name",
        "direction",
        "range",
        "identity",
        "undefined",
        "signature",
        "quirk",
        "needs",
    } <= set(rows[0])


def test_a_metric_is_validated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = {"id": "1a", "ground_truth": "a b", "candidates": {"C1": "a b", "C2": "a"}, "expected_ranking": "C1 > C2"}
    (tmp_path / "cases.json").write_text(json.dumps([case]))
    words = [
        "metrics",
        "validate",
        "--benchmark",
        "radjudge",
        "--root",
        str(tmp_path),
        "--metrics",
        "rouge1:google",
        "--quiet",
    ]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert "1 of 1" in capsys.readouterr().out
    assert json.loads((tmp_path / "run/validation.json").read_text())["metrics"]["rouge1:google"]["cases"] == {
        "1a": True
    }
    assert main(["metrics", "validate", "--benchmark", "radpref"]) == 1
    assert "--root is missing" in capsys.readouterr().err


@pytest.fixture
def judge(files: Path) -> str:
    """A judge of a file: one significant error in the first report, none in the second, nothing of use on the third."""
    reported = {"Small right pleural effusion.": 1, "The lungs are clear.": 0}
    counts = {f"| {text}\nEND CANDIDATE": answer(np.array([count] + [0] * 11)) for text, count in reported.items()}
    lines = [{"contains": text, "answer": said} for text, said in {**counts, "": UNREADABLE}.items()]
    (files / "judge.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"chexprompt:scripted:{files / 'judge.jsonl'}"


def test_a_judge_is_queried_told_and_left_as_it_is(files: Path, judge: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The mean of 1 and 0 in two of three reports; the empty candidate is asked about too, and not understood."""
    words = ("--predictions", str(files / "p.txt"), "--out", str(files / "run"))
    assert score(files, *words, "--metrics", f"rougeL:google,{judge}") == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith(f"{judge} "))
    assert "0.500" in row and row.split()[-2:] == ["2", "1"]
    assert f"{judge}: 1 of 3 answers could not be read and have no value (1 × " in out
    assert score(files, *words, "--metrics", f"rougeL:google,{judge}", "--llm.connection.tries", "9") == 0
    assert "was finished before and is unchanged" in capsys.readouterr().out


def test_half_of_a_judges_name_is_no_metric(files: Path, judge: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(files, "--predictions", str(files / "p.txt"), "--metrics", f"{judge},half") == 1
    err = capsys.readouterr().err
    assert "there is no metric 'half'" in err and "ends at a comma" in err


def test_a_judge_is_measured(tmp_path: Path, judge: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The case wants the report first in which the judge counts nothing."""
    texts = {"C1": "The lungs are clear.", "C2": "Small right pleural effusion."}
    case = {"id": "1a", "ground_truth": "Clear lungs.", "candidates": texts, "expected_ranking": "C1 > C2"}
    (tmp_path / "cases.json").write_text(json.dumps([case]))
    words = ["metrics", "validate", "--benchmark", "radjudge", "--root", str(tmp_path), "--metrics", judge, "--quiet"]
    assert main([*words, "--out", str(tmp_path / "v")]) == 0
    out = capsys.readouterr().out
    assert f"{judge}  " in out and "1 of 1" in out
    assert main(["page", str(tmp_path / "v"), "--quiet"]) == 0


def test_judges_are_listed_with_what_they_need(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "ls"]) == 0
    out = capsys.readouterr().out
    assert "chexprompt:MODEL" in out and "green:MODEL" in out and "a language model in the place of MODEL" in out
    assert "chexprompt.omission_finding" not in out
    for wanted in ("chexprompt", "chexprompt*", "chexprompt:http://127.0.0.1:1/v1#m"):
        assert main(["metrics", "ls", "--json", "--metrics", wanted]) == 0
        names = [row["name"] for row in json.loads(capsys.readouterr().out)]
        assert names[:2] == ["chexprompt:MODEL", "chexprompt.significant:MODEL"] and len(names) > 2


def test_one_file_or_two_without_a_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "both.csv").write_text("id,reference,prediction\na,Clear lungs.,Clear lungs.\nb,Edema.,Edema.\n")
    (tmp_path / "r.csv").write_text("study_id,report\na,Clear lungs.\nb,Edema.\n")
    (tmp_path / "p.csv").write_text("study_id,report\nb,Edema.\na,Clear lungs.\n")
    words = ["--metrics", "bleu1:coco", "--quiet", "--no-floors"]
    for files, by in ((["both.csv"], "file"), (["r.csv", "p.csv"], "id"), (["r.csv", "p.csv", "--by-row"], "row")):
        given = [str(tmp_path / word) if word.endswith(".csv") else word for word in files]
        assert main(["score", *given, *words, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["matching"]["by"] == by and (found["metrics"]["bleu1:coco"]["value"] > 0.99) is (by != "row")
        assert main(["score", *given, *words]) == 0
        assert "matched " in capsys.readouterr().out.splitlines()[1]
    assert main(["score", str(tmp_path / "r.csv"), "--references", str(tmp_path / "r.csv")]) == 1
    assert "and --references set the same value" in capsys.readouterr().err
    assert main(["score", str(tmp_path / "r.csv"), "--by-row", "--columns", "id=study_id"]) == 1
    assert "contradict" in capsys.readouterr().err


def test_a_certificate_prints_its_verdict_first_and_decides_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file with both texts: forty studies of different effusions, all with one and the same report."""
    table = tmp_path / "both.csv"
    rows = [
        f"s{k},There is a {size} pleural effusion.,The lungs are clear."
        for k, size in enumerate(["small", "large"] * 20)
    ]
    table.write_text("\n".join(["id,reference,candidate", *rows]) + "\n")
    words = ["certify", str(table), "--trials", "50", "--metrics", "rougeL:google", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 1
    out = capsys.readouterr().out
    assert out.startswith("SEVERE: All 40 reports are one and the same text") and "not tested  image dependence" in out
    assert "All 40 reports" in (tmp_path / "run" / "page.html").read_text()
    assert main([*words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["rule"] == "constant"
    few = tmp_path / "few.csv"
    few.write_text(
        "\n".join(["id,reference,candidate", *rows[:2]]).replace("The lungs are clear.", "Normal.", 1) + "\n"
    )
    assert main(["certify", str(few), "--trials", "50", "--quiet"]) == 0, "a caution"
    assert main(["certify", str(few), "--trials", "50", "--quiet", "--fail-on", "caution"]) == 1
