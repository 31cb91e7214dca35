"""Input transformations as defences of a victim, and the attacker who moves images through them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpora import toy_corpus
from tables import every_row
from torch import Tensor

from cxrlab.attacks.input_transformations import TRANSFORMATIONS, BehindTransformation, parse_transformation
from cxrlab.core.errors import ConfigError
from cxrlab.core.image_codec import to_unit
from cxrlab.core.model_interfaces import Capabilities, Generated
from cxrlab.extraction.attack_rounds import align_images
from cxrlab.extraction.config import Alignment, DefenceSettings, DefendConfig
from cxrlab.extraction.defence.base import DEFENCES, Benign, defended, rewording_defences
from cxrlab.extraction.defence.defences import Blur, Noise
from cxrlab.extraction.defence.defend import Plan, adaptation, attack_config, benign_cost, defend
from cxrlab.extraction.records import QueryImage
from cxrlab.studies.extraction_study import defences_over_seeds

PRESENT, ABSENT = "There is a small left pleural effusion.", "The lungs are clear."


def board(side: int = 32) -> Any:
    rows, columns = np.indices((side, side))
    return ((rows + columns) % 2).astype(np.float32)


class Texture:
    """States an effusion where neighbouring pixels differ, which a blur ends."""

    name, capabilities = "texture", Capabilities(batch=True)

    def generate(self, images: Sequence[Any], indications: Any = None) -> list[Generated]:
        return [Generated(PRESENT if np.abs(np.diff(image, axis=0)).mean() > 0.2 else ABSENT) for image in images]


@every_row("name", TRANSFORMATIONS)
def test_every_transformation_is_a_defence_of_its_name(name: str) -> None:
    defence = DEFENCES.load(name).from_settings(DefenceSettings(), Benign(DefenceSettings(), 7))
    assert defence.name == name and name not in rewording_defences()
    given = [board(), np.stack([board(20)] * 3, axis=-1)]
    found = defence.transform(given)
    assert [one.shape for one in found] == [(32, 32), (20, 20, 3)]
    again = DEFENCES.load(name).from_settings(DefenceSettings(), Benign(DefenceSettings(), 7)).transform(given)
    assert all(np.array_equal(one, two) for one, two in zip(found, again, strict=True))


def test_the_model_gets_transformed_images_and_its_strength_is_a_setting() -> None:
    assert Texture().generate([board()])[0].text == PRESENT
    assert defended(Texture(), Blur(parse_transformation("blur:2"), 7)).generate([board()])[0].text == ABSENT
    settings = DefenceSettings(strengths=("blur:0.1", "jpeg:30"))
    weak = Blur.from_settings(settings, Benign(settings, 7))
    assert defended(Texture(), weak).generate([board()])[0].text == PRESENT
    assert str(settings.transformation("jpeg")) == "jpeg:30" and str(settings.transformation("bits")) == "bits:4"
    for wrong in (("jpeg:30", "jpeg:40"), ("jpg",)):
        with pytest.raises(ConfigError):
            DefenceSettings(strengths=wrong)


def test_the_noise_of_an_audit_is_repeated_by_its_seed_alone() -> None:
    first, other = Noise(parse_transformation("noise"), 7), Noise(parse_transformation("noise"), 8)
    assert not np.array_equal(first.transform([board()])[0], other.transform([board()])[0])
    assert not np.array_equal(first.transform([0.5 * board()])[0] * 2, first.transform([board()])[0])


class Guide:
    """Its loss is a checkerboard by 1 and a half plane by 0.1; see the test of the attack in attacks."""

    device = torch.device("cpu")

    def losses(self, images: Tensor, reports: Sequence[str], indications: Sequence[Any]) -> Tensor:
        side = images.shape[-1]
        half = torch.where(torch.arange(side) < side // 2, 1.0, -1.0)
        weights = torch.from_numpy(2 * board(side) - 1) + 0.1 * half[None, :]
        return (images[:, 0] * weights).flatten(1).sum(dim=1)


def test_the_change_of_an_image_that_was_moved_through_the_transformation_survives_it() -> None:
    flat = np.full((32, 32), 128, np.uint8)
    pictures, blur = [QueryImage("p", flat)], parse_transformation("blur:1.5")
    after = {}
    for through in (None, "blur:1.5"):
        settings = Alignment(eps="0.1", through=through)
        ((moved, losses),) = align_images(Guide(), pictures, ["report"], settings, seed=1, round=1)
        pixels = torch.from_numpy(to_unit(moved.pixels))[None, None]
        seen = Guide().losses(blur(pixels, ()), [], []) - Guide().losses(
            blur(torch.full_like(pixels, 128 / 255), ()), [], []
        )
        after[through] = float(seen)
        assert losses["after"] < losses["before"]
    assert after["blur:1.5"] < 5 * after[None] < 0 or after[None] >= 0 > after["blur:1.5"]


def test_a_guide_behind_a_transformation_keeps_its_device() -> None:
    assert BehindTransformation(Guide(), parse_transformation("jpeg"), 1, 1).device == torch.device("cpu")


class Record:
    """An attack whose results are made up."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def __call__(self, plan: Plan, out: Path) -> Mapping[str, Any]:
        self.plans.append(plan)
        value = 0.4 if plan.defence and plan.adaptation.through is None else 0.5
        ends = {"value": value, "low": value - 0.02, "high": value + 0.02, "n": 50}
        return {"spent": 4, "surrogate": {"findings.f1": ends}, "victim": {}, "method": "ada-steal", "budget": 4}


@pytest.mark.slow
def test_defend_measures_the_cost_and_both_attackers(tmp_path: Path) -> None:
    corpus = toy_corpus(tmp_path / "corpus", 48)
    config = DefendConfig("stub:normal", corpus.path, defences=("jpeg", "noise"), trials=40, budget=4,
                          settings=DefenceSettings(strengths=("jpeg:30", "noise:0.1")))  # fmt: skip
    assert not set(TRANSFORMATIONS) & set(DefendConfig.defences)
    attack = Record()
    found = defend(config, tmp_path / "run", attack)
    knows = [(plan.defence, plan.adaptation.through) for plan in attack.plans]
    assert knows == [(None, None), ("jpeg", None), ("jpeg", "jpeg:30"), ("noise", None), ("noise", "noise:0.1")]
    row = found["defences"]["jpeg"]
    assert row["benign"]["other_findings"]["value"] == 0 and row["benign"]["milliseconds"] > 0  # a model without eyes
    assert row["attacks"]["plain"]["loss"]["difference"] == pytest.approx(-0.1)
    assert row["attacks"]["adaptive"]["loss"]["difference"] == 0 and row["attacks"]["adaptive"]["through"] == "jpeg:30"
    assert (tmp_path / "run" / "benign_jpeg.jsonl").is_file()
    planned = attack_config(config, attack.plans[2])
    assert planned.alignment.through == "jpeg:30" and planned.defence_settings.strengths == ("jpeg:30", "noise:0.1")
    blur = Blur(parse_transformation("blur"), 7)
    assert adaptation(blur, dataclasses.replace(config, method="knockoff")) is None
    over = defences_over_seeds([found, found])["jpeg"]["copy"]["plain"]
    assert over["mean"] == pytest.approx(-0.1) and over["seeds"] == len(over["by_seed"]) == 2


def test_reports_with_other_findings_are_counted(tmp_path: Path) -> None:
    from cxrlab.extraction.defence.defend import BenignCase
    from cxrlab.metrics.report_pairs import Pair

    pixels = (255 * board()).astype(np.uint8)
    cases = [BenignCase(Pair(f"s{number}", PRESENT, PRESENT, f"p{number}"), pixels) for number in range(4)]
    found = benign_cost(
        Blur(parse_transformation("blur"), 7), cases, trials=20, seed=1, reports=[PRESENT, ABSENT, ABSENT, PRESENT]
    )
    assert found["other_findings"]["value"] == found["reworded"]["value"] == 0.5
    assert found["difference"]["findings.f1"]["difference"] < 0


def test_a_server_gives_its_model_transformed_images_with_new_draws() -> None:
    from cxrlab.serving.batching import ImageQuestion, ModelRunner

    class Sees:
        name, capabilities = "sees", Capabilities(batch=True)

        def generate(self, images: Sequence[Any], indications: Any = None) -> list[Generated]:
            return [Generated(repr(image.sum())) for image in images]

    question = ImageQuestion((255 * board()).astype(np.uint8), None, None)
    transform = Noise(parse_transformation("noise"), seed=None).transform
    said = [ModelRunner(Sees(), transform=transform).ask([question])[0] for _ in range(2)]
    assert said[0] != said[1] and ModelRunner(Sees()).ask([question]) == ModelRunner(Sees()).ask([question])
