"""Cautions: one sentence for one reason, wherever it is shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import markupsafe
import numpy as np
import pytest

from cxrlab.cli.main import main
from cxrlab.core.image_codec import encode_png
from cxrlab.core.model_interfaces import Capabilities, Generated
from cxrlab.data.card import CARD
from cxrlab.evaluation import generate as module
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generate import (
    SMALL,
    SUMMARY,
    caution_domain,
    caution_image_size,
    collect_server_cautions,
    generate,
)
from cxrlab.evaluation.load_model import load_model
from cxrlab.models.builtin import NAMES, WEIGHTS
from cxrlab.models.model_card import PATIENTS, SYNTHETIC, ModelCard, of_corpora, read_model_card, trained_on


class Trained:
    """A model whose card tells what it was trained on, with an input of 32 pixels."""

    name, capabilities, input_side = "planted:trained", Capabilities(batch=True), 32

    def __init__(self, trained_on: str | None = SYNTHETIC, extra: dict[str, Any] | None = None) -> None:
        self.trained_on, self.extra = trained_on, extra or {}

    def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
        """The same for every image."""
        return [Generated("No pneumothorax.", extra=self.extra) for _ in images]


@pytest.fixture
def real(own_phantom: Path) -> Path:
    """A corpus whose card does not say that it is synthetic, with three images of 20 pixels in its test split."""
    card = own_phantom / CARD
    card.write_text("".join(line for line in card.open() if not line.startswith("synthetic")))
    studies = [json.loads(line) for line in (own_phantom / "studies.jsonl").open()]
    for study in [study for study in studies if study["split"] == "test"][:3]:
        (own_phantom / study["images"][0]["path"]).write_bytes(encode_png(np.zeros((20, 40), np.uint8)))
    return own_phantom


def run(data: Path, out: Path, monkeypatch: pytest.MonkeyPatch, model: Any) -> list[str]:
    """The cautions in the summary of a run."""
    monkeypatch.setattr(module, "open_model", lambda *_: model)
    done = generate(GenerateConfig(model=model.name, data=data, batch_size=4, control_studies=0), out)
    found: list[str] = json.loads((out / SUMMARY).read_text())["cautions"]
    assert list(done.cautions) == found
    return found


def test_a_model_of_synthetic_images_is_cautioned_about_on_others_alone() -> None:
    assert "trained on synthetic images only" in str(caution_domain(Trained(), synthetic=False))
    assert caution_domain(Trained(), synthetic=True) is None
    assert caution_domain(Trained(PATIENTS), synthetic=False) is None
    assert caution_domain(Trained(None), synthetic=False) is None
    assert str(caution_domain(Trained(), synthetic=False, name="clinic")).startswith("clinic ")


def test_a_library_of_synthetic_images_is_one_too(phantom: Path, real: Path) -> None:
    assert caution_domain(load_model(f"retrieval:{phantom}"), synthetic=False)
    assert caution_domain(load_model(f"retrieval:{real}"), synthetic=False) is None


def test_the_built_in_models_say_what_they_were_trained_on() -> None:
    cards = [read_model_card(WEIGHTS / name) for name in NAMES]
    assert [card.trained_on if card else None for card in cards] == [SYNTHETIC] * len(NAMES)


def test_what_a_model_was_trained_on_follows_from_its_parts_and_corpora() -> None:
    assert trained_on([None, SYNTHETIC]) == SYNTHETIC and trained_on([SYNTHETIC, PATIENTS]) == PATIENTS
    assert trained_on([None]) is None
    assert of_corpora([True, True]) == SYNTHETIC and of_corpora([True, False]) == PATIENTS
    assert ModelCard("align", collections=("phantom", "scenes")).learnt_from == SYNTHETIC  # cards of earlier versions
    assert ModelCard("align", collections=("phantom", "mimic-cxr")).learnt_from == PATIENTS
    assert ModelCard("align").learnt_from is None


def test_small_images_are_counted_once_for_a_run() -> None:
    assert caution_image_size(0, 120, 128) is None
    assert caution_image_size(37, 120, 128) == "37 of 120 images are smaller than the model's input of 128 px."


def test_generate_records_cautions_and_score_and_page_show_the_same_sentences(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = run(real, tmp_path / "run", monkeypatch, Trained())
    assert first == caution_domain(Trained(), synthetic=False)
    images = len((tmp_path / "run" / "predictions.jsonl").read_text().splitlines())
    assert second == caution_image_size(3, images, 32)
    noted = [json.loads(line) for line in (tmp_path / "run" / SMALL).open()]
    assert [(one["height"], one["width"]) for one in noted] == [(20, 40)] * 3
    reported = capsys.readouterr().err
    assert f"caution: {first}" in reported and f"caution: {second}" in reported
    scored = tmp_path / "scored"
    words = f"score --references {real} --predictions {tmp_path / 'run'} --split test --metrics findings.f1"
    assert main([*words.split(), "--out", str(scored), "--quiet"]) == 0
    assert json.loads((scored / "scores.json").read_text())["cautions"] == [first, second]
    assert f"caution: {first}" in capsys.readouterr().out
    page = tmp_path / "page.html"
    assert main(["page", str(tmp_path / "run"), str(scored), "--out", str(page)]) == 0
    for sentence in (first, second):
        assert page.read_text().count(markupsafe.escape(sentence)) == 2  # with the reports, and with the scores


def test_a_stopped_run_counts_small_images_once(real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stops(Trained):
        batches = 0

        def generate(self, images: Sequence[Any], indications: Any = None) -> list[Generated]:
            self.batches += 1
            if self.batches == 3:
                raise KeyboardInterrupt
            return super().generate(images, indications)

    with pytest.raises(KeyboardInterrupt):
        run(real, tmp_path / "run", monkeypatch, Stops())
    again = run(real, tmp_path / "run", monkeypatch, Trained())
    assert again == run(real, tmp_path / "whole", monkeypatch, Trained())
    assert (tmp_path / "run" / SMALL).read_bytes() == (tmp_path / "whole" / SMALL).read_bytes()


def test_a_synthetic_corpus_of_the_right_size_needs_no_caution(
    phantom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(phantom, tmp_path / "run", monkeypatch, Trained()) == []


def test_cautions_of_a_server_are_counted(phantom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(phantom, tmp_path / "run", monkeypatch, Trained(None, {"cautions": ["Beware."]}))
    assert found == collect_server_cautions(
        [["Beware."]] * len((tmp_path / "run" / "predictions.jsonl").read_text().splitlines())
    )
    assert collect_server_cautions([None, ["Beware."]]) == ["The server's caution on 1 of 2 reports: Beware."]
