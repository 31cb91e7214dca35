"""Judges whose error rates are planted: `metrics validate` says of them what scipy says of the planted counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_server import ChatServer, last_message_text
from numpy.typing import NDArray
from scipy.stats import kendalltau, ttest_rel
from simulated_judges import Counts, Planted, answer, candidate, plant, script

from cxrlab.core.egress import Connection
from cxrlab.core.errors import ConfigError, CxrlabError
from cxrlab.core.llm_requests import LLMConfig
from cxrlab.core.runs import state
from cxrlab.core.tables import as_text
from cxrlab.evaluation.config import ValidateConfig
from cxrlab.evaluation.select_metrics import format_unreadable_answers
from cxrlab.evaluation.validate_metrics import run_validation, validation_parts

STRONGER, WEAKER = 0.03, 0.6  # share of the twelve counts that are wrong by one
LOST = frozenset(range(0, 60, 7))


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return plant(tmp_path_factory.mktemp("rexval"))


@pytest.fixture(scope="module")
def counted(planted: Planted) -> dict[str, Counts]:
    return {"weaker": planted.counted(1, WEAKER), "stronger": planted.counted(2, STRONGER)}


@pytest.fixture(scope="module")
def found(planted: Planted, counted: dict[str, Counts], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Three judges beside the rules: a weaker one, a stronger one, and the stronger one that falls silent at times."""
    folder = tmp_path_factory.mktemp("judges")
    names = {name: script(folder / name, counts) for name, counts in counted.items()}
    names["silent"] = script(folder / "silent", counted["stronger"], LOST)
    asked = ("errors.total", "errors.significant", *(f"chexprompt:{model}" for model in names.values()))
    out = folder / "run"
    reported = run_validation(ValidateConfig("rexval", planted.root, metrics=asked, trials=50), out)
    assert reported == json.loads((out / "validation.json").read_text())
    return {**reported, "names": names, "out": out}


def sums(counts: Counts) -> dict[str, NDArray[np.float64]]:
    return {"total": counts.sum(axis=1).astype(float), "significant": counts[:, :6].sum(axis=1).astype(float)}


def metric(model: str, which: str) -> str:
    return f"chexprompt:{model}" if which == "total" else f"chexprompt.significant:{model}"


@pytest.mark.parametrize("which", ["total", "significant"])
@pytest.mark.parametrize("judge", ["weaker", "stronger", "silent"])
def test_tau_is_that_of_the_planted_counts(
    planted: Planted, counted: dict[str, Counts], found: dict[str, Any], judge: str, which: str
) -> None:
    """Answers that could not be read are left out, and n says so."""
    read = np.array([judge != "silent" or pair not in LOST for pair in range(len(planted.truth))])
    said = sums(counted["stronger" if judge == "silent" else judge])[which][read]
    truth = getattr(planted, which).mean(axis=1)[read]
    row = found["metrics"][metric(found["names"][judge], which)]
    suffix = "" if which == "total" else "_significant"
    assert row[f"tau{suffix}"] == pytest.approx(kendalltau(said, truth).statistic)
    assert row[f"low{suffix}"] < row[f"tau{suffix}"] < row[f"high{suffix}"]
    assert row["n"] == read.sum()


@pytest.mark.parametrize("which", ["total", "significant"])
@pytest.mark.parametrize("judge", ["weaker", "stronger", "silent"])
def test_every_judge_takes_every_raters_seat(
    planted: Planted, counted: dict[str, Counts], found: dict[str, Any], judge: str, which: str
) -> None:
    """Mean absolute differences to the mean of the other raters, and the paired t-test, as scipy has them."""
    read = np.array([judge != "silent" or pair not in LOST for pair in range(len(planted.truth))])
    said = sums(counted["stronger" if judge == "silent" else judge])[which][read]
    ratings = getattr(planted, which)[read]
    name = found["names"][judge]
    table = found["raters"]["judges"][f"chexprompt:{name}"][which]
    assert table["judge"] == metric(name, which) and set(table["by_rater"]) == {str(rater) for rater in range(6)}
    near, far = [], []
    for rater in range(6):
        others = np.delete(ratings, rater, axis=1).mean(axis=1)
        person, machine = np.abs(ratings[:, rater] - others), np.abs(said - others)
        test = ttest_rel(machine, person)
        row = table["by_rater"][str(rater)]
        assert row["rater_difference"] == pytest.approx(person.mean())
        assert row["judge_difference"] == pytest.approx(machine.mean())
        assert (row["t"], row["p"]) == pytest.approx((test.statistic, test.pvalue))
        assert (row["n"], row["df"]) == (read.sum(), read.sum() - 1)
        near.append(machine.mean())
        far.append(person.mean())
    assert table["mean"] == pytest.approx({"judge_difference": np.mean(near), "rater_difference": np.mean(far)})


def test_the_stronger_judge_is_stronger(found: dict[str, Any]) -> None:
    """By order and by count, also by the interval of the difference; the raters' own numbers are the same for both."""
    weak, strong = found["names"]["weaker"], found["names"]["stronger"]
    rows, seats = found["metrics"], found["raters"]["judges"]
    for which, suffix in (("total", ""), ("significant", "_significant")):
        assert rows[metric(strong, which)][f"tau{suffix}"] > rows[metric(weak, which)][f"tau{suffix}"] + 0.1
        mine, theirs = seats[f"chexprompt:{strong}"][which]["mean"], seats[f"chexprompt:{weak}"][which]["mean"]
        assert mine["judge_difference"] < mine["rater_difference"] < theirs["judge_difference"]
        assert mine["rater_difference"] == theirs["rater_difference"]
        gap = found["differences"][f"chexprompt:{strong}"]
        taus = [rows[metric(model, which)][f"tau{suffix}"] for model in (strong, weak)]
        assert gap["above"] == f"chexprompt:{weak}" and gap[which]["low"] > 0
        assert gap[which]["difference"] == pytest.approx(taus[0] - taus[1])


def test_the_rules_keep_their_own_table(planted: Planted, found: dict[str, Any]) -> None:
    assert set(found["raters"]) == {"total", "significant", "judges"}
    assert found["raters"]["total"]["judge"] == "errors.total"
    alone = run_validation(ValidateConfig("rexval", planted.root, metrics=("errors.total",), trials=10))
    assert alone["raters"] == {"total": found["raters"]["total"]} and alone["judges"] == alone["differences"] == {}


def test_what_could_not_be_read_is_told_and_kept(planted: Planted, found: dict[str, Any]) -> None:
    pairs = len(planted.truth)
    silent, strong = (found["judges"][f"chexprompt:{found['names'][name]}"] for name in ("silent", "stronger"))
    assert (strong["asked"], strong["parsed"], strong["failed"], strong["reasons"]) == (pairs, pairs, 0, {})
    assert (silent["parsed"], silent["partial"], silent["failed"]) == (pairs - len(LOST), 0, len(LOST))
    assert sum(silent["reasons"].values()) == len(LOST)
    (line,) = format_unreadable_answers(found["judges"])
    assert f"{len(LOST)} of {pairs} answers could not be read and have no value" in line
    lines = [json.loads(line) for line in (found["out"] / "judged.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines][:2] == ["0:radgraph", "0:bertscore"]
    said = lines[0]["judged"]
    assert said[f"chexprompt:{found['names']['silent']}"]["status"] == "failed"
    assert said[f"chexprompt:{found['names']['weaker']}"]["status"] == "parsed"
    asked = [json.loads(line) for line in (found["out"] / "requests.jsonl").read_text().splitlines()]
    assert len(asked) == 3 * pairs and len({one["id"] for one in asked}) == 3 * pairs


def test_the_text_sets_the_judges_side_by_side(found: dict[str, Any]) -> None:
    text = as_text(validation_parts(found))
    assert "omission_finding" not in text, "one kind of error alone"
    mean = found["raters"]["judges"][f"chexprompt:{found['names']['weaker']}"]["total"]["mean"]
    assert f"{mean['judge_difference']:.3f} beside {mean['rater_difference']:.3f}" in text
    assert f"n {60 - len(LOST)}" in text and "could not be read" in text
    row = found["raters"]["judges"][f"chexprompt:{found['names']['weaker']}"]["total"]["by_rater"]["0"]
    assert f"rater 0 {row['judge_difference'] - row['rater_difference']:+.3f} (p" in text, (
        "who is closer, and by how much"
    )
    lines = [line for line in text.splitlines() if line.endswith(f" {60 - len(LOST)} of 60")]
    assert len(lines) == 4 and all("silent" in line for line in lines), (
        "total and significant of the one that is not whole, and the shares without errors"
    )
    assert f"chexprompt:{found['names']['stronger']} above chexprompt:{found['names']['weaker']}" in text


def test_a_judge_that_says_nothing_has_no_value(planted: Planted, tmp_path: Path) -> None:
    """Undefined everywhere, never 0 or the best; and it is said."""
    name = script(tmp_path / "mute", planted.truth, range(len(planted.truth)))
    found = run_validation(ValidateConfig("rexval", planted.root, metrics=(f"chexprompt:{name}",), trials=10))
    row = found["metrics"][f"chexprompt:{name}"]
    assert row["tau"] is None and row["n"] == 0
    seat = found["raters"]["judges"][f"chexprompt:{name}"]["total"]
    assert seat["mean"] == {"rater_difference": None, "judge_difference": None}
    assert f"NONE of its {len(planted.truth)} answers could be read" in as_text(validation_parts(found))


def fixed(file: Path, **answers: int) -> str:
    """A judge of a file that counts so many significant errors where the candidate holds a word."""
    lines = [
        {"contains": word, "answer": answer(np.array([count] + [0] * 11))} for word, count in {**answers, "": 1}.items()
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"chexprompt:scripted:{file}"


def test_a_judge_ranks_cases(tmp_path: Path) -> None:
    """Fewer errors are better; the two cases want opposite orders."""
    candidates = {"C1": "Quartz in both lungs.", "C2": "Basalt in both lungs."}
    case = {"ground_truth": "The lungs are clear.", "candidates": candidates}
    cases = [{**case, "id": "a", "expected_ranking": "C1 > C2"}, {**case, "id": "b", "expected_ranking": "C2 > C1"}]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    name = fixed(tmp_path / "judge", Quartz=0, Basalt=2)
    found = run_validation(ValidateConfig("radjudge", tmp_path, metrics=(name,)), tmp_path / "run")
    assert found["metrics"][name] == {"passed": 1, "of": 2, "cases": {"a": True, "b": False}}
    assert found["judges"][name]["parsed"] == 4
    asked = (tmp_path / "run/requests.jsonl").read_text().splitlines()
    assert len(asked) == 2, "the cases hold the same two pairs of texts"


def test_a_judge_is_held_against_ratings(tmp_path: Path) -> None:
    """RadPref: every judge sits in the raters' seats, on a line from its value to the mean rating."""
    root = Path(__file__).parent / "cases/radpref"
    name = fixed(tmp_path / "judge")
    found = run_validation(ValidateConfig("radpref", root, metrics=(name, "rougeL:google"), trials=10))
    assert found["metrics"][name]["tau"] is None, "a constant has no order"
    assert found["raters"]["judge"] == "rougeL:google" and set(found["raters"]["judges"]) == {name}
    assert set(found["raters"]["judges"][name]["by_rater"]) == {"user_1", "user_2"}
    assert name in as_text(validation_parts(found))


def test_phantoms_ask_a_judge_of_every_case_once(tmp_path: Path) -> None:
    """Not for the sensitivity table; and they may go anywhere, being nobody's."""
    name = fixed(tmp_path / "judge")
    config = ValidateConfig("phantom", n=12, metrics=(name, "rougeL:google"), trials=10)
    found = run_validation(config, tmp_path / "run")
    assert found["metrics"][name]["n"] == 12 and found["judges"][name]["asked"] == 12
    assert set(next(iter(found["sensitivity"]["rows"].values()))["metrics"]) == {"rougeL:google"}
    assert len((tmp_path / "run/requests.jsonl").read_text().splitlines()) == 12


def test_a_wrong_judge_leaves_nothing_behind(planted: Planted, tmp_path: Path) -> None:
    for name, said in (
        ("chexprompt:scripted:nowhere.jsonl", "nowhere.jsonl does not exist"),
        ("chexpromt:scripted:x", "Did you mean 'chexprompt'"),
        ("chexprompt", "needs a model"),
        ("chexprompt:https://example.org/v1#m", "may hold patients' data"),
    ):
        with pytest.raises(Exception, match=said) as error:
            run_validation(ValidateConfig("rexval", planted.root, metrics=(name,)), tmp_path / "run")
        assert isinstance(error.value, ConfigError) or "nowhere" in name
        assert not (tmp_path / "run").exists()


def test_a_validation_that_was_stopped_asks_nothing_twice(tmp_path: Path) -> None:
    """Over loopback: the server dies after five of eight answers, comes back, and the result is that of a whole run."""
    planted = plant(tmp_path / "rexval", studies=2, raters=3)
    answered: list[str] = []
    left = 5

    def said(body: dict[str, Any]) -> str | tuple[int, dict[str, Any]]:
        nonlocal left
        if left <= 0:
            return 500, {"error": {"message": "gone"}}
        left -= 1
        answered.append(last_message_text(body))
        pair = next(pair for pair in range(len(planted.truth)) if candidate(pair) in answered[-1])
        return answer(planted.truth[pair])

    with ChatServer(said) as server:
        llm = LLMConfig(connection=Connection(tries=1, concurrency=1, timeout_s=5.0))
        asked = ValidateConfig("rexval", planted.root, metrics=(f"chexprompt:{server.address()}",), trials=10, llm=llm)
        with pytest.raises(CxrlabError):
            run_validation(asked, tmp_path / "run")
        assert state(tmp_path / "run") == "interrupted" and len(answered) == 5
        server.stop()
        left = 100
        server.start()
        found = run_validation(asked, tmp_path / "run")
        assert len(answered) == len(set(answered)) == 8
        assert run_validation(asked, tmp_path / "whole") == found
    assert (tmp_path / "run/judged.jsonl").read_bytes() == (tmp_path / "whole/judged.jsonl").read_bytes()
