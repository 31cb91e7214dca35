"""`--plan` on the command line: its table, its JSON, and that nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cxrlab.cli.main import main
from cxrlab.cli.plans import duration, planned
from cxrlab.core.plan import Hardware, Plan, Work, from_two_sizes

HARDWARE = Hardware("CPU", 2, 1.5)


def test_sums_are_of_what_is_left() -> None:
    work = (
        Work("steps", "step", 100, 2.0, done=40, once_s=5.0, measured=8),
        Work("parallel", "image", 10, 4.0, at_once=2),
        Work("finished", "image", 10, 4.0, done=10, once_s=3.0),
        Work("requests to m", "request", 50, done=20, prompt_tokens=900, answer_tokens=60, price=1.5),
    )
    plan = Plan("x", work, HARDWARE)
    assert [one.seconds for one in work] == [125.0, 20.0, 0.0, None]
    assert (plan.seconds, plan.untimed, plan.requests, plan.price) == (145.0, ("requests to m",), 30, 1.5)
    three = work[3].times(3, "seeds: ")
    assert (three.name, three.count, three.left, three.prompt_tokens, three.price) == (
        "seeds: requests to m", 150, 90, 2700, 4.5,
    )  # fmt: skip
    result = planned(plan)
    found = json.loads(json.dumps(result.data))
    assert (found["seconds"], found["requests"], found["work"][0]["left"]) == (145.0, 30, 60)
    text = str(result.parts)
    assert "Not timed: requests to m." in text and "at most 1.50" in text and "2.4 minutes" in text


def test_two_sizes_give_a_line() -> None:
    assert from_two_sizes(lambda n: 3.0 + 0.5 * n, 10, 30, 1000) == (0.5, 3.0, 30)
    assert from_two_sizes(lambda n: 3.0 + 0.5 * n, 10, 30, 6) == (1.0, 0.0, 6)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 seconds"), (5.04, "5.0 seconds"), (119, "119 seconds"), (7200, "2.0 hours")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_data_commands_plan_and_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make = ["data", "make", "phantom", "--n", "12", "--size", "32", "--workers", "1", "--no-masks", "--quiet"]
    assert main([*make, "--plan", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["work"][0]["count"], found["disk_gb"] > 0, list(tmp_path.iterdir())) == (12, True, [])
    assert (
        main(["data", "make", "scenes", "--n", "9", "--size", "32", "--workers", "1", "--quiet", "--plan", "--json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["work"][0]["count"], found["disk_gb"] > 0, list(tmp_path.iterdir())) == (9, True, [])
    assert main(make) == 1 and "--out is missing" in capsys.readouterr().err
    assert main([*make, "--out", "corpus"]) == 0
    capsys.readouterr()
    before = sorted(tmp_path.rglob("*"))
    structure = ["data", "structure", "corpus", "--plan", "--json"]
    assert main(structure) == 0
    by_rules = json.loads(capsys.readouterr().out)
    priced = ["--model", "http://127.0.0.1:9/v1#m", "--llm.price-answer", "2"]
    assert main([*structure, *priced]) == 0  # nothing listens there
    by_model = json.loads(capsys.readouterr().out)
    outside_test = by_rules["work"][0]["count"]
    assert 0 < outside_test <= 12 and by_rules["seconds"] > 0 and not by_rules["requests"]
    assert 0 < by_model["requests"] <= outside_test and by_model["price"] > 0
    assert sorted(tmp_path.rglob("*")) == before
