"""Another wording or a longer answer, by the settings of whoever asks a judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, last_message_text

from cxrlab.core.errors import ConfigError
from cxrlab.evaluation.config import ScoreConfig
from cxrlab.evaluation.score import run_score
from cxrlab.metrics.judging import JudgeSettings
from cxrlab.preference.judges import PairwiseModelJudge

WORDS = "Grade {candidate} from 1 to 5. Begin with {mark}\n"


@pytest.fixture
def wording(tmp_path: Path) -> Path:
    (tmp_path / "wording.yaml").write_text(json.dumps({"version": "mine-1", "text": WORDS}))
    return tmp_path / "wording.yaml"


def test_a_judge_asks_in_the_users_words_and_its_signature_says_so(wording: Path, tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("The lungs are clear.\n")

    def graded(body: dict[str, Any]) -> str:
        return last_message_text(body).strip().partition("Begin with ")[2] + "\n4"

    with ChatServer(graded) as server:
        name = f"grade:{server.address()}"
        settings = JudgeSettings((f"grade={wording}",), max_tokens=77)
        config = ScoreConfig(tmp_path / "r.txt", tmp_path / "r.txt", metrics=(name,), trials=5, judging=settings)
        run_score(config, tmp_path / "run")
        asked = server.requests[0].body
    assert last_message_text(asked).startswith("Grade BEGIN CANDIDATE") and asked["max_tokens"] == 77
    found = json.loads((tmp_path / "run" / "scores.json").read_text())["metrics"][name]
    assert found["value"] == 4.0 and "prompt:mine-1@" in found["signature"]


def test_a_pairwise_judge_too(tmp_path: Path) -> None:
    file = tmp_path / "pairs.yaml"
    file.write_text(json.dumps({"version": "mine-2", "text": "{reference} {first} {second} {mark}"}))
    judge = PairwiseModelJudge(object(), JudgeSettings((f"pairwise={file}",)))  # type: ignore[arg-type]
    assert judge._model.prompt.version == "mine-2"


@pytest.mark.parametrize(
    ("prompts", "reported"),
    [
        (("chexpromt=a.yaml",), "Did you mean 'chexprompt'"),
        (("green",), "write KIND=FILE"),
        (("green=",), "write KIND=FILE"),
        (("green=a.yaml", "green=b.yaml"), "two wordings for green"),
    ],
)
def test_what_cannot_be_is_told(prompts: tuple[str, ...], reported: str) -> None:
    with pytest.raises(ConfigError, match=reported):
        JudgeSettings(prompts)


def test_no_answer_at_all_is_no_length() -> None:
    with pytest.raises(ConfigError, match="max_tokens=0"):
        JudgeSettings(max_tokens=0)
