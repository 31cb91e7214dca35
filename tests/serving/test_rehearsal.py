"""A server tried out on the loopback: figures that follow from what the model and the guard are known to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cxrlab.cli.main import main
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.serving.config import GuardConfig, RehearseConfig
from cxrlab.serving.rehearsal import rehearse

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "phantom"
    make_phantom(PhantomConfig(n=200, size=64, seed=5, masks=False), folder)
    return folder


def config(corpus: Path, **changes: Any) -> RehearseConfig:
    guarding = GuardConfig(image_bound=0.1, account_bound=0.4, account_queries=20)
    values = {"n": 6, "accounts": 2, "clients": 4, "alone": 2, "queries": 8, "size": 64, "guarding": guarding}
    return RehearseConfig("stub:normal", corpus, **{**values, **changes})


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "rehearsal.jsonl").read_text().splitlines()]


def test_images_pass_in_the_models_own_words_and_scenes_are_cut_off_at_the_third(corpus: Path, tmp_path: Path) -> None:
    """A detector must flag three of an account's pictures before it is stopped, and every scene is flagged."""
    found = rehearse(config(corpus), tmp_path / "run")
    assert (found["benign"]["answered"]["value"], found["benign"]["answered"]["n"]) == (1.0, 6)
    assert found["benign"]["same_words"]["value"] == 1.0 and found["benign"]["blocked"] == 0
    scenes = found["attacks"]["scenes"]
    assert (scenes["blocked_at"], scenes["queries"], scenes["reports"]) == (3, 3, 0) and "chest-gate" in scenes["why"]
    asked = lines(tmp_path / "run")
    assert [line["answered"] for line in asked] == [True] * 6 + [False] * 3
    assert [line["account"] for line in asked[:4]] == ["benign-1", "benign-2", "benign-1", "benign-2"]


def test_without_a_guard_every_picture_gets_a_report(corpus: Path, tmp_path: Path) -> None:
    found = rehearse(config(corpus, guard=False, alone=0), tmp_path / "run")
    assert found["guard"] is None and found["alone"] is None
    assert found["attacks"]["scenes"] == {"queries": 8, "reports": 8, "blocked_at": None, "why": []}


def test_a_finished_one_is_left_as_it_is_and_a_stopped_one_begins_anew(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cxrlab.serving import rehearsal

    def fails(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(rehearsal, "_attack", fails)
        rehearse(config(corpus), tmp_path / "run")
    assert len(lines(tmp_path / "run")) == 6 and not (tmp_path / "run" / "rehearsal.json").exists()
    found = rehearse(config(corpus), tmp_path / "run")
    assert len(lines(tmp_path / "run")) == 9
    with monkeypatch.context() as patch:
        patch.setattr(rehearsal, "_serve", fails)
        assert rehearse(config(corpus), tmp_path / "run") == found


def test_no_key_is_left_in_the_folder_or_in_the_environment(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    from cxrlab.serving import accounts

    made: list[str] = []
    monkeypatch.setattr(accounts, "new_key", lambda: made.append(f"cxr-planted-{len(made)}") or made[-1])
    before = dict(os.environ)
    rehearse(config(corpus), tmp_path / "run")
    assert len(made) == 3 and dict(os.environ) == before
    kept = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert not any(key.encode() in kept for key in made)


def test_the_split_that_sets_thresholds_cannot_try_them(corpus: Path) -> None:
    with pytest.raises(ConfigError, match="cannot both set the guard's thresholds and test them"):
        config(corpus, split="val")


def test_too_few_images_for_the_bound_are_reported(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="image_bound|images"):
        rehearse(config(corpus, guarding=GuardConfig()), tmp_path / "run")


def test_the_command_tells_its_threat_model_first(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["serve", "rehearse", "--model", "stub:normal", "--data", str(corpus), "--n", "4", "--queries", "5"]
    words += ["--size", "64", "--guarding.image-bound", "0.1", "--guarding.account-bound", "0.4"]
    words += ["--guarding.account-queries", "20"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Threat model:")
    assert "benign images answered" in said and "1.0000 [0.3976, 1.0000] of 4" in said
    row = next(line for line in said.splitlines() if line.startswith("scenes"))
    assert row.split()[1] == "3" and row.split()[-2:] == ["0", "3"]
