"""Aims on models whose losses and words are known, and on a tiny model of transformers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tiny_models import save_tiny_llava
from torch import Tensor
from toy_objectives import images

import cxrlab
from cxrlab.attacks.objectives import (
    ChangeFinding,
    LowerReportLoss,
    Objective,
    RaiseReportLoss,
    ReportHarm,
    WrongAnswers,
    present_observations,
    without_finding,
)
from cxrlab.core.vocabulary import OBSERVATIONS

EFFUSION, NORMAL = "There is a small left pleural effusion.", "The lungs are clear."
BOTH = "There is a small left pleural effusion. There is cardiomegaly."


class Priced:
    """Each report has a price; the loss is that price times the mean of the image."""

    def __init__(self, prices: dict[str, float]) -> None:
        self.prices = prices
        self.reasons: list[str | None] = []

    def losses(self, images: Tensor, reports: Sequence[str], indications: Sequence[str | None]) -> Tensor:
        self.reasons += indications
        return torch.tensor([self.prices[text] for text in reports]) * images.mean(dim=(1, 2, 3))

    def losses_of_each(
        self, images: Tensor, reports: Sequence[Sequence[str]], indications: Sequence[str | None]
    ) -> list[Tensor]:
        return [self.losses(images, one, indications) for one in reports]


def grey(*values: float) -> Tensor:
    """Even images."""
    return torch.tensor(values).reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2).clone()


def writes(*reports: str) -> Callable[[Tensor, Sequence[int]], list[str]]:
    """Row → report, whatever the image."""
    return lambda images, rows: [reports[row] for row in rows]


def test_the_true_report_becomes_unlikely_and_changed_findings_break() -> None:
    model = Priced({EFFUSION: 4.0, NORMAL: 2.0})
    aim = RaiseReportLoss(model, [NORMAL, EFFUSION], ["cough", None], [NORMAL, NORMAL], writes(NORMAL, EFFUSION))
    # Image 1 comes first: rows, not places, decide the report.
    assert aim.losses(grey(0.5, 0.25), [1, 0]).tolist() == [4 * 0.5, 2 * 0.25]
    assert model.reasons == [None, "cough"]
    assert aim.succeeded(grey(0.5, 0.25), [1, 0]).tolist() == [True, False]
    assert aim.succeeded_by_loss(torch.tensor([99.0]), [0]) is None  # a loss that rose tells nothing


def test_other_words_for_the_same_findings_do_not_break() -> None:
    report = "Small effusion on the left."
    aim = RaiseReportLoss(Priced({}), [NORMAL], [None], [EFFUSION], writes(report))
    assert present_observations(report) == {"pleural effusion"} and not aim.succeeded(grey(0.5), [0]).any()


def test_a_chosen_report_becomes_likely_and_its_findings_alone_count() -> None:
    aim = LowerReportLoss(Priced({EFFUSION: 4.0}), [EFFUSION] * 3, [None] * 3, writes(EFFUSION, BOTH, NORMAL))
    assert aim.losses(grey(0.5, 0.5), [0, 1]).tolist() == [-2.0, -2.0]
    assert aim.succeeded(grey(0, 0, 0), [0, 1, 2]).tolist() == [True, False, False]


def test_a_report_without_a_finding_becomes_likelier_than_the_one_with_it() -> None:
    model = Priced({BOTH: 4.0, "There is cardiomegaly. There is no pleural effusion.": 1.0})
    aim = ChangeFinding(model, [BOTH], ["pleural effusion"], [None], writes("There is cardiomegaly."), invent=False)
    # What he wants is as likely as 1, what he does not want as 4: 4 − 1 on a white image.
    assert aim.losses(grey(1.0), [0]).tolist() == [3.0] and aim.succeeded(grey(1.0), [0]).tolist() == [True]
    assert aim.name == "remove"


def test_a_report_with_an_invented_finding_becomes_likelier_than_the_one_without_it() -> None:
    report = "No pneumothorax. The lungs are clear."
    wanted = "There is pneumothorax. The lungs are clear."
    model = Priced({report: 1.0, wanted: 3.0})
    aim = ChangeFinding(model, [report] * 2, ["pneumothorax"] * 2, [None] * 2, writes(report, wanted), invent=True)
    assert aim.losses(grey(1.0, 0.5), [0, 1]).tolist() == [-2.0, -1.0]
    assert aim.succeeded(grey(1.0, 1.0), [0, 1]).tolist() == [False, True] and aim.name == "invent"


def answers(truths: Sequence[Sequence[float]], before: Sequence[int]) -> WrongAnswers:
    """Margins of both labels are 4 · (mean of the image − ½) and its opposite."""

    def margins(images: Tensor, rows: Sequence[int]) -> Tensor:
        lean = 4 * (images.mean(dim=(1, 2, 3)) - 0.5)
        return torch.stack([lean, -lean], dim=1)

    return WrongAnswers(margins, torch.tensor(truths), before)


def test_wrong_answers_count_known_labels_alone() -> None:
    nan = math.nan
    aim = answers([[1, 0], [1, nan], [nan, nan]], [0, 0, 0])
    found = aim.losses(grey(0.75, 0.75, 0.75), [0, 1, 2])
    # A margin of 1 for what is there and of −1 for what is not: −log of the logistic of 1 each; nothing is known of 2.
    right = math.log(1 + math.exp(-1))
    assert found.tolist() == pytest.approx([right, right, 0.0])
    assert aim.succeeded(grey(0.25, 0.25, 0.25), [0, 1, 2]).tolist() == [True, True, False]
    assert aim.succeeded(grey(0.75, 0.75), [0, 1]).tolist() == [False, False]
    assert (
        aim.succeeded_by_loss(found, [0, 1, 2]) is None
    )  # two labels of the first: one may be wrong, the other surely right


def test_an_answer_that_was_wrong_before_does_not_count_as_broken() -> None:
    assert answers([[0, 0]], [1]).succeeded(grey(0.75), [0]).tolist() == [False]
    assert answers([[0, 0]], [0]).succeeded(grey(0.75), [0]).tolist() == [True]


def test_a_single_question_is_decided_by_its_loss_exactly_as_by_its_answer() -> None:
    """Also at a margin of 0, which is no yes."""
    for truth in (1.0, 0.0):
        aim = answers([[truth, math.nan]], [0])
        for value in (0.25, 0.4999, 0.5, 0.5001, 0.75):
            losses = aim.losses(grey(value), [0]).double()
            report = aim.succeeded_by_loss(losses, [0])
            assert report is not None
            if value != 0.5 or truth == 0:  # where presence is denied by a margin of 0 the loss may keep silent
                assert bool(report) == bool(aim.succeeded(grey(value), [0]))
            assert not bool(report) or bool(aim.succeeded(grey(value), [0]))
    assert answers([[1, math.nan]], [1]).succeeded_by_loss(torch.tensor([9.0]), [0]) is None


def test_the_verdict_may_follow_other_answers_than_the_gradient() -> None:
    truths = torch.tensor([[1.0]])
    aim = WrongAnswers(
        lambda images, rows: images.mean(dim=(1, 2, 3))[:, None], truths, [0], lambda images, rows: -images[:, 0, 0, :1]
    )
    assert aim.succeeded(grey(0.5), [0]).tolist() == [True]
    assert aim.succeeded_by_loss(torch.tensor([9.0]), [0]) is None


def harm(truth: set[str], before: str, after: str) -> tuple[float, bool, bool]:
    """(loss, broken, what the loss tells)."""
    aim = ReportHarm([frozenset(truth)], [before], writes(after))
    losses = aim.losses(grey(0.5), [0])
    report = aim.succeeded_by_loss(losses.double(), [0])
    assert report is not None
    return float(losses), bool(aim.succeeded(grey(0.5), [0])), bool(report)


def test_harm_by_words_counts_misses_first_and_tells_whether_findings_changed() -> None:
    assert harm({"pleural effusion"}, EFFUSION, EFFUSION) == (0.0, False, False)
    loss, *verdicts = harm({"pleural effusion"}, EFFUSION, NORMAL)  # one missed, one changed, all words but none alike
    assert loss == pytest.approx(1.1, abs=0.011) and verdicts == [True, True]
    # Other words for the same finding.
    loss, *verdicts = harm({"pleural effusion"}, EFFUSION, "Small effusion on the left.")
    assert 0 < loss <= 0.01 and verdicts == [False, False]
    loss, *verdicts = harm({"cardiomegaly"}, EFFUSION, EFFUSION)  # wrong from the beginning
    assert loss == 2.0 and verdicts == [False, False]
    loss, *verdicts = harm({"cardiomegaly"}, EFFUSION, "There is cardiomegaly.")  # changed for the better
    assert loss == pytest.approx(0.2, abs=0.011) and verdicts == [True, True]


def test_many_changed_findings_do_not_outweigh_a_missed_one() -> None:
    """Ten changed ones would come to a whole number, which is what nothing changed looks like."""
    many = [name for name in OBSERVATIONS if present_observations(f"There is {name}.") == {name}][:20]
    report = " ".join(f"There is {name}." for name in many)
    assert len(present_observations(report)) >= 12
    loss, broken, known = harm(set(present_observations(report)), NORMAL, report)
    assert loss == pytest.approx(0.9, abs=0.011) and broken and known


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return cxrlab.load_model(f"hf:{save_tiny_llava(tmp_path_factory.mktemp('tiny') / 'tiny')}", device="cpu")


def reports_of(model: Any) -> Callable[[Tensor, Sequence[int]], list[str]]:
    return lambda images, rows: [said.text for said in model.generate(images)]


def aims_on(model: Any, count: int) -> dict[str, Objective]:
    """Every aim on a report model."""
    true, reasons = [BOTH] * count, [None] * count
    write = reports_of(model)
    asked = lambda images, rows: model.yes_margins(images, "Is there edema?")[:, None]  # noqa: E731
    return {
        "report": RaiseReportLoss(model, true, reasons, true, write),
        "target": LowerReportLoss(model, true, reasons, write),
        "remove": ChangeFinding(model, true, ["cardiomegaly"] * count, reasons, write, invent=False),
        "invent": ChangeFinding(model, true, ["pneumothorax"] * count, reasons, write, invent=True),
        "answers": WrongAnswers(asked, torch.ones(count, 1), [0] * count),
    }


def test_losses_are_those_of_the_model(llava: Any) -> None:
    all_images = images(3, 32)
    aims = aims_on(llava, 3)
    with torch.no_grad():
        true = llava.losses(all_images, [BOTH] * 3)
        without = llava.losses(all_images, [without_finding(BOTH, "cardiomegaly")] * 3)
        margins = llava.yes_margins(all_images, "Is there edema?")
        found = {name: aim.losses(all_images, [0, 1, 2]) for name, aim in aims.items()}
    assert torch.allclose(found["report"], true) and torch.allclose(found["target"], -true)
    assert torch.allclose(found["remove"], true - without)
    assert torch.allclose(found["answers"], torch.nn.functional.softplus(-margins))


def test_sixteen_images_at_once_are_sixteen_images(llava: Any) -> None:
    """Losses, gradients and reports of an image do not depend on its batch."""
    all_images, rows = images(16, 32), range(16)
    for name, aim in aims_on(llava, 16).items():
        asked = all_images.clone().requires_grad_()
        losses = aim.losses(asked, rows)
        (slope,) = torch.autograd.grad(losses.sum(), asked)
        assert bool(slope.isfinite().all()) and bool((slope.flatten(1).abs().amax(dim=1) > 0).all()), name
        for row in (0, 7, 15):
            one = all_images[row : row + 1].clone().requires_grad_()
            alone = aim.losses(one, [row])
            (own,) = torch.autograd.grad(alone.sum(), one)
            assert alone.item() == pytest.approx(losses[row].item(), rel=1e-4, abs=2e-5), name
            assert torch.allclose(own[0], slope[row], rtol=1e-3, atol=1e-3 * float(slope[row].abs().max())), name
    write = reports_of(llava)
    together = write(all_images, rows)
    assert [write(all_images[row : row + 1], [row])[0] for row in (0, 7, 15)] == [together[row] for row in (0, 7, 15)]
