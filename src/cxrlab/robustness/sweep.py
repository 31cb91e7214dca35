"""The sweep of an audit: every image under every attack, radius and corruption, and what each model returns for it.

Batches depend only on the corpus and the batch size. All answers of one batch, one model and one attack are
appended together, so that a stopped sweep repeats at most one such work item and ends with the same lines. Where a
batch does not fit in memory, its images are attacked in halves: every random number for an image depends on the seed
and its id.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cxrlab.attacks.attack import AttackResult
from cxrlab.attacks.config import ATTACKS
from cxrlab.attacks.corruptions import corrupt
from cxrlab.attacks.gradient import make_universal
from cxrlab.attacks.regions import region_mask
from cxrlab.core.errors import DataError, OutOfMemory
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run
from cxrlab.core.terminal import track
from cxrlab.core.workers import Workers
from cxrlab.robustness.audit_records import (
    ANSWERS_FILE,
    CLEAN,
    Answer,
    AttackTrace,
    ImageAnswer,
    answer_id,
    read_answers,
)
from cxrlab.robustness.audited_models import AuditedModel
from cxrlab.robustness.audited_studies import Case, Cases
from cxrlab.robustness.config import ALL, REPORT
from cxrlab.robustness.micro_batches import MicroBatches
from cxrlab.robustness.triptychs import save_images

if TYPE_CHECKING:
    from cxrlab.attacks.config import Budget
    from cxrlab.core.model_interfaces import Image
    from cxrlab.robustness.config import RobustnessConfig

UNIVERSAL = "universal"
PARTLY_WHITE_BOX = (UNIVERSAL, "ensemble")  # they use gradients, but not only or not while the image is perturbed


@dataclass(frozen=True)
class AttackWithGoal:
    """An attack with the goal (aim) that it pursues."""

    attack: str  # Row of the table
    aim: str | None  # None for a control, which has none
    first: bool  # Whether the aim is the first of the settings, which conditions do not name

    def condition(self, budget: Budget) -> str:
        """`pgd@2/255`, `pgd:answers@2/255`."""
        aim = "" if self.first or self.aim is None else f":{self.aim}"
        return f"{self.attack}{aim}@{budget.label}"


def follows_gradients(attack: str) -> bool:
    """Whether an attack takes gradients of a model that gives them."""
    return ATTACKS.load(attack).white_box or attack in PARTLY_WHITE_BOX


def attacks_with_goals(model: AuditedModel, config: RobustnessConfig) -> tuple[list[AttackWithGoal], list[str]]:
    """The attacks on a model, and a sentence for each reason to leave some out."""
    aims = [aim for aim in config.aims if aim in model.aims]
    chosen: list[AttackWithGoal] = []
    left_out: dict[str, list[str]] = {}
    for name in config.attacks:
        kind = ATTACKS.load(name)
        if kind.is_control:
            chosen.append(AttackWithGoal(name, None, True))
        elif not aims:
            continue
        elif (kind.white_box or name == UNIVERSAL) and not model.gradients:
            left_out.setdefault("provides no gradients", []).append(name)
        elif kind.needs_scores and not model.scores:
            left_out.setdefault("returns only text", []).append(name)
        elif kind.text_only and REPORT not in model.aims:
            left_out.setdefault("generates no reports", []).append(name)
        else:
            # First by the settings, not by the model: a condition means the same for all models.
            chosen += [
                AttackWithGoal(name, aim, aim == config.aims[0]) for aim in ([REPORT] if kind.text_only else aims)
            ]
    notes = [
        f"{model.name} {reason}, so that {', '.join(names)} {'is' if len(names) == 1 else 'are'} left out; "
        "its robustness against them is not known."
        for reason, names in left_out.items()
    ]
    if not aims:
        notes.append(f"{model.name} is not attacked: none of the aims {', '.join(config.aims)} applies to it.")
    return chosen, notes


class Sweep:
    """All batches of an audit.

    Args:
        models: The audited models, the one under audit first.
    """

    def __init__(self, run: Run, cases: Cases, models: Sequence[AuditedModel], config: RobustnessConfig) -> None:
        self.run, self.cases, self.models, self.config = run, cases, tuple(models), config
        self._batch_size = BatchSize(config.batch_size, run.folder)
        self._micro_batches = MicroBatches(cases, config, run.folder)
        # (model, study) → answer to the clean image. Attacks start from it, after a restart from the one on file.
        self._clean: dict[tuple[str, str], ImageAnswer] = {}
        self._batches, self._items = cases.batches(), list(self.work_items())
        self._images: dict[str, Image] = {}  # of the last batch
        self._done = run.done(ANSWERS_FILE) if run.appends else set()
        self._remember(list(read_answers(run.path(ANSWERS_FILE))) if self._done else [])
        self._with_images = {case.id for case in cases.all[: 3 * config.triptychs]}

    def sweep(self, workers: Workers | None = None) -> None:
        """Do what is not on file yet, here or in workers."""
        done = self._done
        work = [(batch, item) for batch in range(len(self._batches)) for item in range(len(self._items))]
        left = [one for one in work if not done.issuperset(self._ids(*one))]
        found: Iterator[list[Answer]]
        if workers is None:
            found = (self.answers(*one) for one in left)
        else:
            found = workers.map("answers", ((*one, self._known_clean(one[0])) for one in left))
        total, label = len(self.cases) * len(self._items), "attacking studies, once per condition"
        for one in track(work, label, total, size=lambda one: len(self._batches[one[0]])):
            ids = self._ids(*one)
            if done.issuperset(ids):
                continue
            by_id = {answer.id: answer for answer in next(found)}
            for key in ids:
                if key not in done:
                    self.run.append(ANSWERS_FILE, answer := by_id[key])
                    if answer.condition == CLEAN:
                        self._clean[answer.model, answer.study] = answer.image

    def answers(self, batch: int, item: int, clean: Sequence[tuple[str, str, ImageAnswer]] = ()) -> list[Answer]:
        """Every answer of one work item for one batch.

        Args:
            clean: Model, study and answer to the clean image, as far as known; the others are computed first.
        """
        cases, what = self._batches[batch], self._items[item]
        if cases[0].id not in self._images:
            self._images = {case.id: self.cases.image(case) for case in cases}
        self._clean |= {(model, study): answer for model, study, answer in clean}
        if item and len(self._known_clean(batch)) < len(cases) * len(self.models):
            self._remember(self._answers(cases, self._items[0], self._images))
        found = self._answers(cases, what, self._images)
        self._remember(found)
        return found

    def _remember(self, answers: Sequence[Answer]) -> None:
        self._clean |= {(one.model, one.study): one.image for one in answers if one.condition == CLEAN}

    def _known_clean(self, batch: int) -> list[tuple[str, str, ImageAnswer]]:
        keys = [(model.key, case.id) for model in self.models for case in self._batches[batch]]
        return [(*key, self._clean[key]) for key in keys if key in self._clean]

    def _ids(self, batch: int, item: int) -> list[str]:
        """The ids of the answers of a work item for a batch, in the order of the file."""
        what = self._items[item]
        return [
            answer_id(viewer.key, condition, case.id, what.crafted_on)
            for condition in what.conditions for viewer in what.viewers for case in self._batches[batch]
        ]  # fmt: skip

    def work_items(self) -> Iterator[WorkItem]:
        """Clean images, corruptions, then the attacks on each model; a control once for all models."""
        config, first = self.config, self.models[0]
        yield CleanImages((CLEAN,), self.models, None)
        for name in config.corrupted:
            yield Corruption(tuple(f"{name}@{severity}" for severity in config.severities), self.models, None, name)
        controls: set[str] = set()
        for model in self.models:
            # Those that an attacked model is compared with also examine its images.
            viewers = tuple(one for one in self.models if one is model or (config.transfer and first in (one, model)))
            for attack in attacks_with_goals(model, config)[0]:
                conditions = tuple(attack.condition(budget) for budget in config.budgets)
                if attack.aim is not None:
                    yield ModelAttack(conditions, viewers, model.key, attack, model)
                elif attack.attack not in controls:
                    controls.add(attack.attack)
                    yield Control(conditions, self.models, None, attack)

    def _answers(self, batch: Sequence[Case], item: WorkItem, images: Mapping[str, Image]) -> list[Answer]:
        """Every answer of one work item, with less memory where it runs out."""
        examine = partial(self._examine, item=item, images=images)
        try:
            return self._batch_size.map(batch, examine)
        except OutOfMemory:
            if not self._micro_batches.checkpoint_from_now_on():
                raise
        return self._batch_size.map(batch, examine)

    def _examine(self, batch: Sequence[Case], item: WorkItem, images: Mapping[str, Image]) -> Iterator[Answer]:
        """Every answer of one work item; images of one shape go together."""
        for model in self.models:
            model.clear_cache()  # a stopped sweep begins here again, and must give the same to the last bit
        for places in group_by_shape([images[case.id] for case in batch]):
            cases = [batch[place] for place in places]
            yield from item.answers(self, cases, [images[case.id] for case in cases])

    def attack(
        self, attack: AttackWithGoal, model: AuditedModel, cases: Sequence[Case], clean: Tensor,
        viewers: Sequence[AuditedModel], crafted_on: str | None,
    ) -> Iterator[Answer]:  # fmt: skip
        """Attack a model at each radius, and examine the images."""
        config = self.config
        images = clean.to(model.device)
        kind = ATTACKS.load(attack.attack)
        aim = attack.aim or next((one for one in config.aims if one in model.aims), model.aims[0])
        answers = [self._clean[model.key, case.id] for case in cases]
        if kind.text_only:
            objective = model.text_objective(cases, answers)
        else:
            objective = model.objective(aim, cases, answers, images)
        height, width = (int(side) for side in clean.shape[-2:])
        region = None  # [B, 1, H, W], where pixels may change
        if config.region != ALL:
            masks = [region_mask(config.region, (height, width), self.cases.finding_masks(case)) for case in cases]
            region = torch.from_numpy(np.stack(masks))[:, None]
        micro_batch = None
        if objective.gradients and follows_gradients(attack.attack):
            micro_batch = self._micro_batches.of(model, aim, (height, width))
        previous = None
        for budget in config.budgets:
            if attack.attack == UNIVERSAL:
                size = tuple(clean.shape[1:])
                made = universal_change(
                    self.run, self.cases, model, aim, budget, size, config, self._batch_size, micro_batch
                )
                perturb = kind(config.attack, change=made)
            else:
                perturb = kind(config.attack)
            result = perturb(
                objective, images, budget, keys=[case.id for case in cases], seed=config.seed, region=region,
                initial_images=previous if perturb.starts_from_smaller_radius else None, micro_batch=micro_batch,
            )  # fmt: skip
            previous = result.images
            condition = attack.condition(budget)
            shown = self.as_shown(result.images)
            if crafted_on is not None or model is self.models[0]:
                save_images(self.run, self._with_images, condition, model.key, cases, clean, shown)
            yield from self.examine(condition, cases, shown, viewers, crafted_on, result)

    def as_shown(self, images: Tensor) -> Tensor:
        """What models see of images: with `rounded` their 8 bits."""
        return (images * 255).round() / 255 if self.config.rounded else images

    def examine(
        self, condition: str, cases: Sequence[Case], images: Tensor, viewers: Sequence[AuditedModel],
        crafted_on: str | None = None, result: AttackResult | None = None,
    ) -> Iterator[Answer]:  # fmt: skip
        """What each model returns for the images; the model they were made for also gets them in 8 bits."""
        for viewer in viewers:
            own = crafted_on in (None, viewer.key)
            shown = images.to(viewer.device)
            rounded: list[ImageAnswer] | None = None
            if not (own and self.config.uint8) or self.config.rounded:
                answers = viewer.examine(shown, cases)
            else:
                as_uint8 = (shown * 255).round() / 255
                if len(cases) == 1:  # a batch of one must need the memory of one image
                    answers, rounded = viewer.examine(shown, cases), viewer.examine(as_uint8, cases)
                else:
                    both = viewer.examine(torch.cat([shown, as_uint8]), [*cases, *cases])
                    answers, rounded = both[: len(cases)], both[len(cases) :]
            for place, case in enumerate(cases):
                trace = None
                if result is not None and own:
                    trace = AttackTrace(
                        start=float(result.initial_loss[place]),
                        end=float(result.final_loss[place]),
                        broken=bool(result.succeeded[place]),
                        linf=float(result.linf[place]),
                        l2=float(result.l2[place]),
                        passes=int(result.passes[place]),
                        zero_gradients=float(result.zero_gradients[place]),
                    )
                yield Answer(
                    id=answer_id(viewer.key, condition, case.id, crafted_on),
                    model=viewer.key,
                    condition=condition,
                    crafted_on=crafted_on,
                    study=case.id,
                    image=answers[place],
                    uint8=rounded[place] if rounded else None,
                    attack=trace,
                )


@dataclass(frozen=True, eq=False)
class WorkItem(ABC):
    """What is done together for one batch."""

    conditions: tuple[str, ...]
    viewers: tuple[AuditedModel, ...]  # The models that examine the images
    crafted_on: str | None  # Key of the model for which they are perturbed; None where they are the same for all models

    @abstractmethod
    def answers(self, sweep: Sweep, cases: Sequence[Case], images: Sequence[Image]) -> Iterator[Answer]:
        """What each viewer returns for these cases under each condition; the images have one shape."""


class CleanImages(WorkItem):
    """The images as they are."""

    def answers(self, sweep: Sweep, cases: Sequence[Case], images: Sequence[Image]) -> Iterator[Answer]:
        """One condition."""
        yield from sweep.examine(CLEAN, cases, sweep.as_shown(image_batch(images)), self.viewers)


@dataclass(frozen=True, eq=False)
class Corruption(WorkItem):
    """The images under one corruption."""

    name: str

    def answers(self, sweep: Sweep, cases: Sequence[Case], images: Sequence[Image]) -> Iterator[Answer]:
        """One condition per severity."""
        seed = sweep.config.seed
        for condition, severity in zip(self.conditions, sweep.config.severities, strict=True):
            corrupted = [
                corrupt(self.name, image, severity, key=case.id, seed=seed)
                for case, image in zip(cases, images, strict=True)
            ]
            yield from sweep.examine(condition, cases, sweep.as_shown(image_batch(corrupted)), self.viewers)


@dataclass(frozen=True, eq=False)
class Control(WorkItem):
    """A control such as noise: the same images for all models, but each has losses of its own."""

    attack: AttackWithGoal

    def answers(self, sweep: Sweep, cases: Sequence[Case], images: Sequence[Image]) -> Iterator[Answer]:
        """One condition per radius."""
        for viewer in self.viewers:
            yield from sweep.attack(self.attack, viewer, cases, image_batch(images), [viewer], None)


@dataclass(frozen=True, eq=False)
class ModelAttack(WorkItem):
    """An attack on one model."""

    attack: AttackWithGoal
    model: AuditedModel

    def answers(self, sweep: Sweep, cases: Sequence[Case], images: Sequence[Image]) -> Iterator[Answer]:
        """One condition per radius."""
        yield from sweep.attack(self.attack, self.model, cases, image_batch(images), self.viewers, self.crafted_on)


def image_batch(images: Sequence[Image]) -> Tensor:
    """[H, W] or [H, W, 3] each → [B, C, H, W] float32."""
    return torch.stack([image_tensor(image) for image in images])


def image_tensor(image: Image) -> Tensor:
    """[H, W] or [H, W, 3] → [C, H, W] float32."""
    pixels = torch.from_numpy(np.array(image, np.float32))
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)


def group_by_shape(images: Sequence[Image]) -> list[list[int]]:
    """Positions of the images that have the same shape, in the order in which shapes first occur."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for place, image in enumerate(images):
        groups.setdefault(image.shape, []).append(place)
    return list(groups.values())


def universal_change(
    run: Run, cases: Cases, model: AuditedModel, aim: str, budget: Budget, shape: tuple[int, ...], config: RobustnessConfig,
    batch_size: BatchSize, micro_batch: BatchSize | None,
) -> Tensor:  # fmt: skip
    """A universal perturbation, [1, C, H, W], made from images of another split and kept in the run folder.

    Args:
        cases: Of the audit; patients among them are left out.
        aim: Of the attack.
        shape: C, H and W of the images.
    """
    size = "x".join(map(str, shape))
    path = run.path(f"universal/{model.key}_{aim}_{budget.label.replace('/', '-')}_{size}.npy")
    if path.is_file():
        return torch.from_numpy(np.load(path)).to(model.device)
    split = "train" if config.split != "train" else "val"
    tested = {case.patient for case in cases.all}
    ids = cases.corpus.ids(split)
    order = generator(config.seed, "universal").permutation(len(ids))[: 4 * config.attack.universal_images].tolist()
    needs_report = aim == REPORT and config.against != "own" and model.scores
    chosen: list[Case] = []
    tensors: list[Tensor] = []
    for case in cases.load([ids[place] for place in order]):
        if case.patient in tested:
            continue
        image = image_tensor(cases.image(case))
        enough = len(chosen) >= config.attack.universal_images
        if tuple(image.shape) == shape and not enough and (case.reference or not needs_report):
            chosen.append(case)
            tensors.append(image)
    if not chosen:
        lacking = " with a report" if needs_report else ""
        raise DataError(
            f"The {split} split has no image of {shape[-2]} × {shape[-1]} pixels{lacking} to make a universal "
            "perturbation from; give --image-size, so that all images have one size."
        )
    images = torch.stack(tensors).to(model.device)
    clean = batch_size.map(
        range(len(chosen)), lambda rows: model.examine(images[list(rows)], [chosen[row] for row in rows])
    )
    objective = model.objective(aim, chosen, clean, images)
    keys = [case.id for case in chosen]
    change = make_universal(
        objective, images, budget, config.attack, keys=keys, seed=config.seed, micro_batch=micro_batch
    )
    stream = io.BytesIO()
    np.save(stream, change.detach().cpu().numpy())
    run.write(str(path.relative_to(run.folder)), stream.getvalue())
    return change
