"""A defended model in an audit: votes, an attacker who knows of them, certificates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import planted_targets as planted
import pytest
import torch
from pattern_model import PatternModel
from toy_objectives import images

from cxrlab.attacks.config import AttackSettings
from cxrlab.attacks.gradient import Pgd
from cxrlab.core.errors import ConfigError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.models.hf.model import HfModel
from cxrlab.robustness import audit as audits
from cxrlab.robustness.audited_models import AuditedSmoothedModel, load_audited_model
from cxrlab.robustness.audited_studies import Case, Label, labels_of_kind
from cxrlab.robustness.config import RobustnessConfig, SmoothingSettings, parse_smoothed
from cxrlab.robustness.smoothing import over_copies

EFFUSION = Label("pleural effusion", frozenset({"pleural effusion"}), ("Is there an effusion?",), ())
VOTES = SmoothingSettings(copies=20, attack_copies=6, alpha=0.01, batch_size=8)


def settings(data: Path = Path("corpus"), **changes: Any) -> RobustnessConfig:
    return RobustnessConfig(**{"model": "a", "data": data, "smoothing": VOTES, **changes})


def smoothed(model: Any, labels: Sequence[Label] = (EFFUSION,), sigma: float = 0.1) -> AuditedSmoothedModel:
    return AuditedSmoothedModel("a", f"smoothed:{sigma}:m", labels, model, settings(), sigma)


def case(name: str, there: int = 1) -> Case:
    return Case(
        name, f"p-{name}", None, planted.PRESENT if there else planted.ABSENT, None, {"pleural effusion": there}
    )


def leaning(*leans: float) -> torch.Tensor:
    """Grey images that lean along the pattern by so much; an even grey would lean a little by itself."""
    sign = torch.tensor(planted.SIGN, dtype=torch.float32)
    return 0.5 + (torch.tensor(leans).reshape(-1, 1, 1, 1) - 0.5 * sign.mean()) * sign


def test_probabilities_are_the_votes_of_the_smoothed_model_and_reports_are_its_own() -> None:
    model = PatternModel()
    target = smoothed(model)
    shown, cases = leaning(0.02, 0.001, -0.02), [case("s1"), case("s2"), case("s3", 0)]
    said = target.examine(shown, cases)
    margins = over_copies(model.margin, shown, ["s1", "s2", "s3"], target.smoothing.n, target.smoothing)
    votes = (margins > 0).double().mean(dim=1)
    assert [one.label_probs["pleural effusion"] for one in said] == pytest.approx(votes.tolist())
    assert 0 < said[1].label_probs["pleural effusion"] < 1  # a lean of 0.001 is less than what the noise leaves
    assert [one.report for one in said] == [planted.PRESENT, planted.PRESENT, planted.ABSENT]
    assert [one.loss for one in said] == pytest.approx(
        model.losses(shown, [one.reference or "" for one in cases]).tolist()
    )


def test_a_image_alone_and_in_company_gets_the_same_votes_in_batches_of_eight() -> None:
    model = PatternModel()
    target = smoothed(model)
    shown, names = leaning(*(0.001 * number for number in range(-4, 5))), [f"s{number}" for number in range(9)]
    together = target.shares(shown, names)
    assert max(model.sizes) <= 8 and sum(model.sizes) == 9 * 20
    assert torch.equal(together[3:4], target.shares(shown[3:4], names[3:4]))


def test_a_label_with_two_questions_votes_by_the_likelier_one_of_each_copy() -> None:
    class Two(PatternModel):
        def yes_margins(self, images: Any, questions: Sequence[str] | str) -> torch.Tensor:
            return self.margin(images) * (1 if questions == "left?" else -1)

    both = Label("pleural effusion", frozenset(), ("left?", "right?"), ())
    # Every copy leans one way or the other, so that one of the two questions is always answered by yes.
    assert smoothed(Two(), [both]).shares(leaning(0.0), ["s1"]).tolist() == [[1.0]]


def test_the_attacker_follows_the_mean_probability_of_the_first_copies() -> None:
    model = PatternModel()
    target = smoothed(model)
    shown = leaning(0.004, -0.002).requires_grad_()
    found = target.expected_margins(shown, ["s1", "s2"])
    mean = torch.sigmoid(over_copies(model.margin, shown, ["s1", "s2"], 6, target.smoothing)).mean(dim=1)
    assert torch.allclose(found[:, 0], torch.logit(mean), atol=1e-5)
    (slope,) = torch.autograd.grad(found.sum(), shown, retain_graph=True)
    (plain,) = torch.autograd.grad(torch.logit(mean).sum(), shown)
    assert torch.allclose(slope, plain, atol=1e-4 * float(plain.abs().max()))
    # Higher along the pattern, whatever the noise.
    assert bool(((slope[:, 0] * torch.tensor(planted.SIGN)).sum(dim=(1, 2)) > 0).all())


def test_gradients_through_many_copies_of_a_real_model_take_a_batch_at_a_time(llava: HfModel) -> None:
    """What is thrown away and made again on the way back gives the gradient of everything at once."""
    labels = [one for one in labels_of_kind("observations", "drawn") if one.name in ("edema", "nodule")]
    shown = images(2, 32)
    slopes = []
    for size in (5, 64):
        config = settings(smoothing=SmoothingSettings(20, 4, 0.01, size))
        target = AuditedSmoothedModel("a", "smoothed:0.1:m", labels, llava, config, 0.1)
        asked = shown.clone().requires_grad_()
        found = target.expected_margins(asked, ["s1", "s2"])
        slopes.append(torch.autograd.grad(found.sum(), asked)[0])
        assert found.shape == (2, 2)
    assert float(slopes[0].abs().max()) > 0
    assert torch.allclose(*slopes, rtol=1e-3, atol=1e-3 * float(slopes[0].abs().max()))


def test_pgd_goes_through_the_defence_and_the_votes_decide_what_is_broken() -> None:
    target = smoothed(PatternModel(), sigma=0.02)
    shown, cases = leaning(0.02, 0.02), [case("s1"), case("s2")]
    clean = target.examine(shown, cases)
    assert [one.label_probs["pleural effusion"] for one in clean] == [1.0, 1.0]
    aim = target.objective("answers", cases, clean, shown)
    assert aim.succeeded_by_loss(torch.tensor([9.0]), [0]) is None
    from cxrlab.attacks.config import Budget

    weak, strong = (Pgd(AttackSettings(steps=8))(aim, shown, Budget(eps), keys=["s1", "s2"]) for eps in (0.005, 0.06))
    assert weak.succeeded.tolist() == [False, False] and strong.succeeded.tolist() == [True, True]
    assert bool((target.shares(strong.images, ["s1", "s2"]) < 0.5).all())
    assert aim.succeeded(strong.images[1:], [1]).tolist() == [True]


def test_a_tie_of_votes_is_no_yes() -> None:
    class Torn(PatternModel):
        def yes_margins(self, images: Any, questions: Sequence[str] | str) -> torch.Tensor:
            self.sizes.append(len(images))
            before = sum(self.sizes[:-1])
            return torch.tensor([1.0 if (before + place) % 2 else -1.0 for place in range(len(images))])

    target, cases = smoothed(Torn()), [case("s1", 0)]
    clean = target.examine(leaning(0.0), cases)
    assert clean[0].label_probs == {"pleural effusion": 0.5}
    assert target.objective("answers", cases, clean, leaning(0.0)).succeeded(leaning(0.0), [0]).tolist() == [False]


def test_an_audit_holds_a_model_against_itself_with_the_defence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificates follow from the clean votes; no attack inside a certified radius turns an answer."""
    corpus = planted.pattern_corpus(tmp_path / "corpus", 12)
    config = settings(
        corpus.path, model="plain", versus=("smoothed:0.05:plain",), attacks=("pgd",), eps=("0.2",), norm="l2",
        aims=("answers",), only_labels=(planted.NAME,), trials=20, triptychs=0, control_studies=0, uint8=False,
        attack=AttackSettings(steps=4),
    )  # fmt: skip

    def opened(key: str, name: str, labels: Sequence[Label], config: RobustnessConfig, **_: Any) -> Any:
        if key == "a":
            return planted.PatternTarget(key, name, labels)
        return AuditedSmoothedModel(key, name, labels, PatternModel(), config, 0.05)  # type: ignore[arg-type]

    monkeypatch.setattr(audits, "load_audited_model", opened)
    found = audits.audit(config, tmp_path / "run")
    assert "certified" not in found["models"]["plain"]
    row = found["models"]["smoothed:0.05:plain"]["certified"]
    # The margin leans by 10/255, which is 16 · 10/255 = 0.63 from the other answer: twelve σ. All copies agree.
    best = 0.05 * NormalDist().inv_cdf(0.005 ** (1 / 20))
    assert row["largest"] == pytest.approx(best) and row["sigma"] == 0.05 and row["copies"] == 20
    assert row["abstained"] == pytest.approx({"value": 0.0, "low": 0.0, "high": 1 - 0.025 ** (1 / 12), "n": 12})
    assert {size: one["value"] for size, one in row["right_within"].items()} == {
        "0": 1.0, "0.0125": 1.0, "0.025": 1.0, "0.05": float(best >= 0.05),
    }  # fmt: skip
    lines = [record for _, record in read_jsonl(tmp_path / "run" / "certificates.jsonl")]
    assert [line["id"] for line in lines] == [f"b|{line['study']}" for line in lines] and len(lines) == 12
    assert lines[0]["answers"][planted.NAME] == {"yes": 20, "n": 20, "answer": True, "radius": pytest.approx(best)}
    both = found["models"]
    assert both["plain"]["clean"]["closed_questions.accuracy"]["value"] == 1
    assert both["smoothed:0.05:plain"]["attacks"]["pgd@0.2"]["closed_questions.accuracy"]["value"] == 1  # 0.2 < 0.63
    assert found == json.loads((tmp_path / "run" / "robustness.json").read_text())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smoothed:x:builtin:reporter", "the noise 'x'"),
        ("smoothed:0:builtin:reporter", "not a number above 0"),
        ("smoothed:nan:builtin:reporter", "not a number above 0"),
        ("smoothed:builtin:reporter", "the noise 'builtin'"),
        ("smoothed:0.1", "names no model"),
        ("smoothed:0.1:smoothed:0.1:builtin:reporter", "twice"),
    ],
)
def test_a_bad_name_is_refused_before_anything_is_loaded(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(versus=(name,))


def test_a_good_name_is_taken_apart() -> None:
    assert parse_smoothed("smoothed:0.25:http://h/v1#m") == (0.25, "http://h/v1#m")
    assert parse_smoothed("builtin:reporter") is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"copies": 10}, "copies >= 11"),
        ({"copies": 20, "attack_copies": 21}, "from 1 to copies=20"),
        ({"alpha": 0.0}, "alpha=0.0"),
        ({"batch_size": 0}, "batch_size=0"),
    ],
)
def test_votes_that_could_never_tell_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SmoothingSettings(**changes)


def test_only_open_weights_that_are_asked_can_be_smoothed(llava_folder: Path, encoder_folder: Path) -> None:
    with pytest.raises(ConfigError, match="answers no closed questions"):
        load_audited_model("a", "smoothed:0.1:stub:normal", [EFFUSION], settings())
    with pytest.raises(ConfigError, match="smooths an encoder"):
        load_audited_model("a", f"smoothed:0.1:hf:{encoder_folder}", [EFFUSION], settings())
    silent = labels_of_kind("observations", "none")[:2]
    with pytest.raises(ConfigError, match="none is asked"):
        load_audited_model("a", f"smoothed:0.1:hf:{llava_folder}", silent, settings())
    target = load_audited_model("b", f"smoothed:0.1:hf:{llava_folder}", [EFFUSION], settings(seed=3))
    assert isinstance(target, AuditedSmoothedModel) and target.smoothing.sigma == 0.1 and target.smoothing.seed == 3
    assert "answers" in target.aims and target.gradients
