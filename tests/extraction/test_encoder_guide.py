"""Pictures that a contrastive encoder moves: nearer to the report, in the first round too, without a surrogate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import extraction_attacks as helper
import numpy as np
import pytest
import torch
from extraction_attacks import LinearSurrogate

from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.extraction.attack_rounds import EncoderGuide, align_images, run_attack, was_aligned
from cxrlab.extraction.config import Alignment, Shares
from cxrlab.extraction.records import QueryImage
from cxrlab.models.model_registry import load_encoder

pytestmark = pytest.mark.slow

REPORTS = ["A large right pleural effusion.", "Small left apical pneumothorax.", "Moderate cardiomegaly."]


@pytest.fixture(scope="module")
def guide() -> EncoderGuide:
    return EncoderGuide(load_encoder("builtin:encoder"))


def grey(count: int) -> list[QueryImage]:
    rng = np.random.default_rng(3)
    return [QueryImage(str(k), rng.integers(0, 256, (128, 128), dtype=np.uint8)) for k in range(count)]


def test_the_loss_is_one_less_the_cosine(guide: EncoderGuide) -> None:
    encoder = load_encoder("builtin:encoder")
    images = torch.from_numpy(np.stack([one.pixels for one in grey(3)])).float().div(255.0)
    with torch.no_grad():
        found = guide.losses(images[:, None], REPORTS, [None] * 3).numpy()
    cosines = (encoder.embed_images(list(images.numpy())) * encoder.embed_texts(REPORTS)).sum(axis=1)
    assert found == pytest.approx(1.0 - cosines, abs=1e-5)


def test_an_encoder_without_gradients_is_no_guide() -> None:
    class Flat:
        name = "hf:flat"
        pixels = SimpleNamespace(differentiable=False, reason="it rounds.")

    with pytest.raises(ConfigError, match="hf:flat cannot guide images, since no gradient reaches them: it rounds"):
        EncoderGuide(cast(Any, Flat()))


@pytest.mark.parametrize("changes", [{"oracle": "none"}, {"shares": Shares(0.0, 0.0, 1.0)}])
def test_a_guide_needs_something_to_move_towards(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give --oracle and a --shares.own below 1"):
        helper.settings(alignment=Alignment(guide="builtin:encoder"), **changes)


@pytest.mark.parametrize(("direction", "way"), [("towards", 1), ("away", -1)])
def test_pictures_come_nearer_to_their_own_report(guide: EncoderGuide, direction: Any, way: int) -> None:
    settings = Alignment(eps="0.1", steps=5, direction=direction)
    found, traces = zip(*align_images(guide, grey(3), REPORTS, settings, seed=1, round=0), strict=True)
    encoder = load_encoder("builtin:encoder")

    def likeness(pictures: list[QueryImage]) -> Any:
        images = [one.pixels.astype(np.float32) / 255 for one in pictures]
        return encoder.embed_images(images) @ encoder.embed_texts(REPORTS).T

    gained = way * (likeness(found) - likeness(grey(3)))
    assert (np.diag(gained) > 0.02).all()
    assert all(way * (row["before"] - row["after"]) > 0.02 for row in traces)
    moved = [np.abs(a.pixels.astype(int) - b.pixels).max() for a, b in zip(found, grey(3), strict=True)]
    assert 0 < max(moved) <= 26  # 0.1 of 255


@pytest.mark.parametrize("picture", ["original", "last", "fresh"])
def test_a_guide_moves_the_first_round_too_and_needs_no_surrogate(tmp_path: Path, picture: Any) -> None:
    config = helper.settings(budget=6, alignment=Alignment(picture=picture, guide="builtin:encoder"))
    attack, asked = helper.attack_on(tmp_path, config)
    weights = np.ones((config.size, config.size))
    queries = run_attack(replace(attack, guide=LinearSurrogate(weights)))
    assert attack.learner.learnt == []  # type: ignore[attr-defined]
    assert [one.key.rpartition("@")[2] for one in asked] == ["0", "0", "1", "1", "2", "2"]
    assert len({one.key.partition("@")[0] for one in asked}) == (6 if picture == "fresh" else 2)
    assert all(was_aligned(one, config) for one in queries)
    assert all(one.key.count("@") == 1 for one in asked)
    start = attack.pool.draw(1)[0].pixels.astype(int)
    change = asked[0].pixels.astype(int) - start
    assert change.min() == -51 and (change <= 0).all()  # along the guide's slope, the whole radius


def test_without_a_surrogate_its_own_words_stay_unsaid(tmp_path: Path) -> None:
    shares = Shares(abnormal=0.1, normal=0.05, own=0.85)
    config = helper.settings(budget=60, rounds=2, shares=shares, alignment=Alignment(guide="builtin:encoder"))
    attack, _ = helper.attack_on(tmp_path, config)
    run_attack(replace(attack, guide=LinearSurrogate(np.ones((config.size, config.size)))))
    traces = read_json(tmp_path / "rounds" / "1" / "enrichment.json")
    assert traces["empty"] == traces["sources"]["own"] > 0
    plan = [row for _, row in read_jsonl(tmp_path / "rounds" / "1" / "plan.jsonl")]
    silent = [row for row in plan if not row["target"]["text"]]
    assert silent and all("@" not in row["key"] and "after" not in row for row in silent)
