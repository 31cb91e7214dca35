"""Report models as an audit sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from toy_objectives import images

from cxrlab.attacks.config import ATTACKS, AttackSettings, Budget
from cxrlab.attacks.ensemble import default_members
from cxrlab.core.model_interfaces import Capabilities, Generated
from cxrlab.findings.closed_questions import question_about
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.model import HfModel
from cxrlab.robustness.audit_records import ImageAnswer
from cxrlab.robustness.audited_models import AuditedReportModel, AuditedTextModel, count_wrong_answers, truth_table
from cxrlab.robustness.audited_studies import Case, labels_of_kind
from cxrlab.robustness.config import AttackGoals

TOLD = "There is a small left pleural effusion."
LABELS = [one for one in labels_of_kind("chexpert", "drawn") if one.name in ("Edema", "Lung Lesion")]
SHORT = Decoding(max_new_tokens=8)


def case(name: str, reference: str | None = TOLD, **truth: int) -> Case:
    return Case(name, f"p-{name}", "cough" if name == "s1" else None, reference, None, truth)


def reporter(model: Any, against: str = "reference", labels: Any = LABELS) -> AuditedReportModel:
    return AuditedReportModel("a", "tiny", labels, model, SHORT, against, AttackGoals())


def test_everything_that_is_on_file_is_what_the_model_says(llava: HfModel) -> None:
    """Report and its confidence, loss of the reference, probabilities; a study without a reference has no loss."""
    shown, cases = images(3, 32), [case("s1", Edema=1), case("s2", None, Edema=0), case("s3")]
    target = reporter(llava)
    said = target.examine(shown, cases)
    wrote = llava.answers(shown, ["cough", None, None], SHORT)
    with torch.no_grad():
        losses = llava.losses(shown, [TOLD] * 3, ["cough", None, None]).tolist()
        edema = llava.probability_of_yes(shown, question_about("edema")).tolist()
        # A label with several questions is as likely as the likeliest yes.
        lesion = next(label for label in LABELS if label.name == "Lung Lesion")
        several = [llava.probability_of_yes(shown, question) for question in lesion.questions]
    assert [one.report for one in said] == [answers[0].text for answers in wrote]
    assert [one.tokens for one in said] == [answers[0].tokens for answers in wrote]
    assert [one.mean_logprob for one in said] == pytest.approx([answers[0].mean_logprob for answers in wrote], abs=1e-5)
    assert said[1].loss is None and [said[0].loss, said[2].loss] == pytest.approx([losses[0], losses[2]], rel=1e-4)
    assert [one.label_probs["Edema"] for one in said] == pytest.approx(edema, abs=1e-5)
    assert len(several) > 1
    most = torch.stack(several).amax(dim=0).tolist()
    assert [one.label_probs["Lung Lesion"] for one in said] == pytest.approx(most, abs=1e-5)
    assert all(set(one.labels) == {"Edema", "Lung Lesion"} for one in said)
    assert target.device == llava.device and target.aims == ("report", "answers", "target", "remove", "invent")


def test_a_model_that_is_asked_nothing_has_no_aim_on_answers(llava: HfModel) -> None:
    target = reporter(llava, labels=labels_of_kind("chexpert", "none")[:2])
    assert "answers" not in target.aims
    assert target.examine(images(1, 32), [case("s1")])[0].label_probs == {}


def test_an_attack_is_against_the_reference_or_against_its_own_words(llava: HfModel) -> None:
    shown, cases = images(2, 32), [case("s2"), case("s3")]
    for against in ("reference", "own"):
        target = reporter(llava, against)
        clean = target.examine(shown, cases)
        aim = target.objective("report", cases, clean, shown)
        texts = [TOLD] * 2 if against == "reference" else [one.report or "" for one in clean]
        with torch.no_grad():
            assert torch.allclose(aim.losses(shown, [0, 1]), llava.losses(shown, texts), atol=1e-5)
        assert not aim.succeeded(shown, [0, 1]).any()  # the clean image itself says what it said


class Closed(HfModel):
    """Open weights behind an image processor that nothing can be differentiated through."""

    def __init__(self, model: HfModel) -> None:
        self.__dict__.update(model.__dict__)
        self.capabilities = Capabilities(gradients=False, log_probabilities=True, batch=True)


def test_without_gradients_no_attack_of_an_ensemble_asks_for_them(llava: HfModel) -> None:
    target, cases, shown = reporter(Closed(llava)), [case("s1", Edema=1)], images(1, 32)
    clean = target.examine(shown, cases)
    for aim in target.aims:
        objective = target.objective(aim, cases, clean, shown)
        assert not objective.gradients and default_members(objective) == ("square",), aim
    assert not target.gradients


class Counting:
    """Writes how often it was asked."""

    capabilities = Capabilities()

    def __init__(self) -> None:
        self.asked = 0

    def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
        self.asked += len(images)
        return [Generated("No pneumothorax." if float(image.mean()) < 0.5 else TOLD) for image in images]


def grey(value: float) -> Tensor:
    return torch.full((1, 1, 4, 4), value)


def test_words_alone_are_read_and_the_last_images_are_not_asked_about_twice() -> None:
    model = Counting()
    target = AuditedTextModel("a", "words", labels_of_kind("chexpert", "drawn"), model, Decoding())
    dark, light, cases = grey(0.25), grey(0.75), [case("s1")]
    said = target.examine(light, cases)[0]
    assert said.labels["Pleural Effusion"] == 1 and said.labels["Edema"] == 0
    assert said.loss is None and said.label_probs == {} and not target.scores and target.aims == ("report",)
    aim = target.objective("report", cases, [said], light)
    assert model.asked == 1 and not aim.succeeded(light, [0]).any() and model.asked == 1
    assert aim.succeeded(dark, [0]).tolist() == [True] and model.asked == 2
    assert aim.losses(dark, [0]).item() == pytest.approx(1.1, abs=0.011) and model.asked == 2
    target.clear_cache()
    target.examine(dark, cases)
    assert model.asked == 3
    # The same image of another study may have another indication.
    target.examine(dark, [case("s2")])
    assert model.asked == 4


class CountedQuestions(HfModel):
    """Counts the images about which something is asked, with and without gradients."""

    def __init__(self, model: HfModel) -> None:
        self.__dict__.update(model.__dict__)
        self.asked, self.differentiated, self.scored = 0, 0, 0

    def yes_margins_of_each(self, images: Any, questions: Any) -> Tensor:
        if torch.is_grad_enabled():
            self.differentiated += len(images)
        else:
            self.asked += len(images)
        return super().yes_margins_of_each(images, questions)

    def yes_margins_and_rest(self, images: Any, questions: Any) -> tuple[Tensor, Tensor]:
        self.asked += len(images)
        return super().yes_margins_and_rest(images, questions)

    def losses(self, *given: Any) -> Tensor:
        self.scored += len(given[0])
        return super().losses(*given)


def test_an_attack_and_its_record_ask_about_an_image_once(llava: HfModel) -> None:
    """Clean images at the first radius alone; the result once for success, final loss and record; then the 8-bit copy."""
    model = CountedQuestions(llava)
    target, shown, cases = reporter(model), images(2, 32), [case("s2", Edema=1), case("s3", Edema=0)]
    clean = target.examine(shown, cases)
    objective = target.objective("answers", cases, clean, shown)
    assert (model.asked, model.scored) == (2, 2)
    for _ in range(2):
        result = ATTACKS.load("pgd")(AttackSettings(steps=3))(objective, shown, Budget(0.01), keys=["s2", "s3"])
        answers = target.examine(torch.cat([result.images, result.images.round(decimals=2)]), cases * 2)
    assert (model.asked, model.differentiated, model.scored) == (2 + 4, 2 * 2 * 3, 2 + 4)
    with torch.no_grad():
        margins = llava.yes_margins(result.images, question_about("edema"))
    assert [one.label_probs["Edema"] for one in answers[:2]] == pytest.approx(margins.sigmoid().tolist(), abs=1e-5)
    target.clear_cache()
    target.examine(shown, cases)
    assert model.asked == 8


def test_truths_and_wrong_answers_leave_out_what_is_unknown() -> None:
    cases = [case("s1", **{"Edema": 1}), case("s2", **{"Edema": 0, "Lung Lesion": 1, "Other": 1})]
    names = [label.name for label in LABELS]
    table = truth_table(cases, LABELS)
    assert table[:, names.index("Edema")].tolist() == [1.0, 0.0]
    assert table[0, names.index("Lung Lesion")].isnan() and table[1, names.index("Lung Lesion")] == 1
    said = [ImageAnswer(label_probs={"Edema": 0.5, "Lung Lesion": 0.9})] * 2
    assert count_wrong_answers(cases, said) == [1, 0]  # one half is no yes


def test_images_of_the_same_bytes_and_another_shape_are_examined_apart(llava: HfModel) -> None:
    """Such as the blank control images of a study in portrait and one in landscape format."""
    target = reporter(llava)
    wide = torch.linspace(0, 1, 24 * 48).reshape(1, 1, 24, 48)
    tall = wide.reshape(1, 1, 48, 24)
    with torch.no_grad():
        first, second = (target.margins(one, [0]) for one in (wide, tall))
        assert torch.equal(second, reporter(llava).margins(tall, [0])) and not torch.equal(first, second)
