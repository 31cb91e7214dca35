"""The plan of scoring: time by two samples, and the requests of judges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cxrlab.core.errors import UnknownName
from cxrlab.core.llm_requests import LLMConfig
from cxrlab.evaluation import score_plan
from cxrlab.evaluation.config import ScoreConfig
from cxrlab.evaluation.score import run_score
from cxrlab.evaluation.score_plan import plan_score


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """200 pairs, of which every candidate is one of four sentences."""
    rows = [
        {"id": f"s{k}", "reference": f"The heart is enlarged. Nodule of {k} mm.", "candidate": f"Effusion {k % 4}."}
        for k in range(200)
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_time_grows_with_the_pairs_and_the_rest_counts_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def score(inputs: object, *_: object) -> None:
        now[0] += 3.0 + 0.5 * len(inputs.pairs)  # type: ignore[attr-defined]

    monkeypatch.setattr(score_plan, "score_inputs", score)
    monkeypatch.setattr(score_plan.time, "perf_counter", lambda: now[0])
    plan = plan_score(ScoreConfig(file))
    assert plan.seconds == pytest.approx(3.0 + 0.5 * 200)


def test_requests_of_a_judge_are_counted_and_priced(file: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    llm = LLMConfig(price_answer=1.0)
    config = ScoreConfig(file, metrics=("bleu1:coco", "chexprompt:http://127.0.0.1:9/v1#m"), llm=llm)
    plan = plan_score(config, tmp_path / "run")  # nothing listens there
    assert sorted(tmp_path.rglob("*")) == before
    pairs, requests = plan.work
    assert (pairs.count, requests.count, requests.unit) == (200, 200, "request")
    assert requests.answer_tokens and plan.price == pytest.approx(requests.answer_tokens / 1000)
    assert plan.untimed == (requests.name,) and plan.seconds == pairs.seconds


def test_a_finished_run_takes_nothing_and_a_wrong_name_is_refused(file: Path, tmp_path: Path) -> None:
    config = ScoreConfig(file, metrics=("bleu1:coco",), trials=10)
    run_score(config, tmp_path / "run")
    assert not plan_score(config, tmp_path / "run").work
    with pytest.raises(UnknownName):
        plan_score(ScoreConfig(file, metrics=("blue1:coco",)))
