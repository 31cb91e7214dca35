"""Attack × radius × study: every image is perturbed, shown again, and what came of it is written down.

Images go through in batches that depend on the corpus alone. What belongs to one batch, one model and one attack is
made together and then appended, so that a sweep that was stopped repeats at most one such piece and ends with the
same lines. Where a batch does not fit in memory, its images are attacked in halves: what is random about an image
depends on the seed and its id.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cxrlab.attacks.attack import Attack, AttackResult
from cxrlab.attacks.config import ATTACKS
from cxrlab.attacks.corruptions import corrupt
from cxrlab.attacks.regions import region_mask
from cxrlab.core.errors import DataError
from cxrlab.core.memory import BatchSize
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run
from cxrlab.core.terminal import track
from cxrlab.robustness.cases import Case, Cases, image_tensor, stacked
from cxrlab.robustness.evidence import ANSWERS, CLEAN, Answer, AttackTrace, ImageAnswer, answer_id, read_answers
from cxrlab.robustness.settings import REPORT
from cxrlab.robustness.targets import Target
from cxrlab.robustness.triptychs import keep_image

if TYPE_CHECKING:
    from cxrlab.attacks.config import Budget
    from cxrlab.robustness.settings import RobustnessConfig


if TYPE_CHECKING:
    Answers = list[ImageAnswer]


UNIVERSAL = "universal"  # applied without gradients, made with them


@dataclass(frozen=True)
class Aimed:
    """An attack with an aim.

    Args:
        attack: Row of the table.
        aim: What it wants; None for a control, which wants nothing.
        first: Whether the aim is the first of the settings, which conditions do not name.
    """

    attack: str
    aim: str | None
    first: bool

    def condition(self, budget: Budget) -> str:
        """`pgd@2/255`, `pgd:answers@2/255`."""
        aim = "" if self.first or self.aim is None else f":{self.aim}"
        return f"{self.attack}{aim}@{budget.label}"


def aimed_attacks(target: Target, config: RobustnessConfig) -> tuple[list[Aimed], list[str]]:
    """What a model is attacked with, and a sentence for what had to be left out."""
    aims = [aim for aim in config.aims if aim in target.aims]
    chosen: list[Aimed] = []
    left: dict[str, list[str]] = {}
    for name in config.attacks:
        kind = ATTACKS.load(name)
        if kind.is_control:
            chosen.append(Aimed(name, None, True))
        elif not aims:
            continue
        elif (kind.white_box or name == UNIVERSAL) and not target.gradients:
            left.setdefault("gives no gradients", []).append(name)
        elif kind.needs_scores and not target.scores:
            left.setdefault("gives words and no scores", []).append(name)
        elif kind.text_only and REPORT not in target.aims:
            left.setdefault("writes no reports", []).append(name)
        else:
            wanted = [REPORT] if kind.text_only else aims
            # By the settings, not by the model: a condition means the same for all models.
            chosen += [Aimed(name, aim, aim == config.aims[0]) for aim in wanted]
    told = [
        f"{target.name} {reason}, so that {', '.join(names)} {'is' if len(names) == 1 else 'are'} left out; "
        "its robustness against them is not known."
        for reason, names in left.items()
    ]
    if not aims:
        told.append(f"{target.name}: none of the aims {', '.join(config.aims)} makes sense; it is not attacked.")
    return chosen, told


class Sweep:
    """All batches of an audit.

    Args:
        run: The open run.
        cases: The studies.
        targets: The models, the one under audit first.
        config: Settings.
    """

    def __init__(self, run: Run, cases: Cases, targets: Sequence[Target], config: RobustnessConfig) -> None:
        self.run, self.cases, self.targets, self.config = run, cases, tuple(targets), config
        self._batch_size = BatchSize(config.batch_size, run.folder)
        self._done = run.done(ANSWERS)
        # Model and study → what was said of the clean image, which comes first and is asked once; of a stopped sweep
        # it is read from file, so that attacks begin from the same words.
        self._clean = {(one.model, one.study): one.image for one in self._filed() if one.condition == CLEAN}
        self._kept = {case.id for case in cases.all[: 3 * config.triptychs]}

    def sweep(self) -> None:
        """Do what is not on file yet."""
        batches = self.cases.batches()
        pieces = [(batch, piece) for batch in batches for piece in self._pieces()]
        images: dict[str, Any] = {}
        total = sum(len(batch) for batch, _ in pieces)
        label = "attacking studies, once per condition"
        for batch, piece in track(pieces, label, total, size=lambda one: len(one[0])):
            if self._done.issuperset(self._ids(batch, piece)):
                continue
            if batch[0].id not in images:
                images = {case.id: self.cases.image(case) for case in batch}
            found = self._batch_size.map(batch, partial(self._examine, piece=piece, images=images))
            lines = sorted(found, key=self._place(batch))
            for line in lines:
                if line.id not in self._done:
                    self.run.append(ANSWERS, line)
                    self._done.add(line.id)
                    if line.condition == CLEAN:
                        self._clean[line.model, line.study] = line.image

    def _filed(self) -> Iterator[Answer]:
        """What a stopped sweep has left."""
        return read_answers(self.run.path(ANSWERS)) if self._done else iter(())

    def _pieces(self) -> Iterator[_Piece]:
        """In order: clean images, corruptions, then model by model its attacks; a control once for all."""
        yield _Piece(None, None, None)
        for name in self.config.corrupted:
            yield _Piece(None, None, name)
        controls: list[str] = []
        for target in self.targets:
            for aimed in aimed_attacks(target, self.config)[0]:
                if aimed.aim is None:
                    if aimed.attack not in controls:
                        controls.append(aimed.attack)
                        yield _Piece(None, aimed, None)
                else:
                    yield _Piece(target, aimed, None)

    def _conditions(self, piece: _Piece) -> list[str]:
        if piece.corruption is not None:
            return [f"{piece.corruption}@{severity}" for severity in self.config.severities]
        return [piece.aimed.condition(budget) for budget in self.config.budgets] if piece.aimed else [CLEAN]

    def _viewers(self, piece: _Piece) -> list[Target]:
        """Who looks at a piece: all at what is made for nobody, else its model and whom it is held against."""
        if piece.target is None:
            return list(self.targets)
        first = self.targets[0]
        others = self.targets[1:] if piece.target is first else (first,)
        return [piece.target, *(others if self.config.transfer else ())]

    def _ids(self, batch: Sequence[Case], piece: _Piece) -> list[str]:
        made_for = piece.target.key if piece.target else None
        return [
            answer_id(viewer.key, condition, case.id, made_for)
            for condition in self._conditions(piece)
            for viewer in self._viewers(piece)
            for case in batch
        ]

    def _place(self, batch: Sequence[Case]) -> Any:
        """Lines go on file by condition, viewer and study, whatever shapes the images have."""
        order = {case.id: number for number, case in enumerate(batch)}
        keys = {target.key: number for number, target in enumerate(self.targets)}
        seen: dict[str, int] = {}
        return lambda line: (
            seen.setdefault(line.condition, len(seen)), keys[line.model], order[line.study]
        )  # fmt: skip

    def _examine(self, batch: Sequence[Case], piece: _Piece, images: Mapping[str, Any]) -> Iterator[Answer]:
        """Every line of one piece, shape by shape."""
        for places in stacked([images[case.id] for case in batch]):
            cases = [batch[place] for place in places]
            clean = torch.stack([image_tensor(images[case.id]) for case in cases])
            if piece.corruption is not None:
                yield from self._corrupted(cases, images, piece.corruption)
            elif piece.aimed is None:
                yield from self._lines(CLEAN, cases, clean, self.targets, None, None)
            elif piece.target is None:
                # The same images for everybody, but each model has losses of its own.
                for viewer in self.targets:
                    yield from self._attacked(cases, clean, piece.aimed, viewer, [viewer], None)
            else:
                viewers = self._viewers(piece)
                yield from self._attacked(cases, clean, piece.aimed, piece.target, viewers, piece.target.key)

    def _corrupted(self, cases: Sequence[Case], images: Mapping[str, Any], name: str) -> Iterator[Answer]:
        for severity in self.config.severities:
            spoilt = [corrupt(name, images[case.id], severity, key=case.id, seed=self.config.seed) for case in cases]
            shown = torch.stack([image_tensor(image) for image in spoilt])
            yield from self._lines(f"{name}@{severity}", cases, shown, self.targets, None, None)

    def _attacked(
        self, cases: Sequence[Case], clean: Tensor, aimed: Aimed, crafter: Target, viewers: Sequence[Target],
        made_for: str | None,
    ) -> Iterator[Answer]:  # fmt: skip
        images = clean.to(crafter.device)
        aim = aimed.aim or next((one for one in self.config.aims if one in crafter.aims), crafter.aims[0])
        said = [self._clean[crafter.key, case.id] for case in cases]
        text_only = ATTACKS.load(aimed.attack).text_only
        objective = crafter.text_objective(cases, said) if text_only else crafter.objective(aim, cases, said, images)
        region = self._region(cases, clean)
        begin = None
        for budget in self.config.budgets:
            attack = self._attack(aimed, crafter, aim, budget, clean.shape)
            found = attack(
                objective, images, budget, keys=[case.id for case in cases], seed=self.config.seed, region=region,
                initial_images=begin if attack.starts_from_smaller_radius else None,
            )  # fmt: skip
            begin = found.images
            condition = aimed.condition(budget)
            if made_for is not None or crafter is self.targets[0]:
                keep_image(self.run, self._kept, condition, crafter.key, cases, clean, found.images)
            yield from self._lines(condition, cases, found.images, viewers, made_for, found)

    def _attack(self, aimed: Aimed, crafter: Target, aim: str, budget: Budget, shape: Sequence[int]) -> Attack:
        kind = ATTACKS.load(aimed.attack)
        if aimed.attack == UNIVERSAL:
            size = tuple(shape[1:])
            change = universal_change(self.run, self.cases, crafter, aim, budget, size, self.config, self._batch_size)
            found: Attack = kind(self.config.attack, change=change)
        else:
            found = kind(self.config.attack)
        return found

    def _region(self, cases: Sequence[Case], clean: Tensor) -> Tensor | None:
        """Where pixels may change, [B, 1, H, W]; None for everywhere."""
        if self.config.region == "all":
            return None
        shape = (int(clean.shape[-2]), int(clean.shape[-1]))
        masks = [region_mask(self.config.region, shape, self.cases.finding_masks(case)) for case in cases]
        return torch.from_numpy(np.stack(masks))[:, None]

    def _lines(
        self, condition: str, cases: Sequence[Case], images: Tensor, viewers: Sequence[Target], made_for: str | None,
        found: AttackResult | None,
    ) -> Iterator[Answer]:  # fmt: skip
        """What each viewer says of these images; whom they were made for, or all, also in 8 bits."""
        for viewer in viewers:
            own = made_for in (None, viewer.key)
            said, rounded = self._said(viewer, cases, images, rounded=own and self.config.uint8)
            for place, case in enumerate(cases):
                yield Answer(
                    id=answer_id(viewer.key, condition, case.id, made_for),
                    model=viewer.key,
                    condition=condition,
                    crafted_on=made_for,
                    study=case.id,
                    image=said[place],
                    uint8=rounded[place] if rounded else None,
                    attack=_trace(found, place) if found is not None and own else None,
                )

    def _said(
        self, viewer: Target, cases: Sequence[Case], images: Tensor, *, rounded: bool
    ) -> tuple[Answers, Answers | None]:
        images = images.to(viewer.device)
        if not rounded:
            return viewer.examine(images, cases), None
        as_uint8 = (images * 255).round() / 255
        if len(cases) == 1:  # a batch of one must need the memory of one image
            return viewer.examine(images, cases), viewer.examine(as_uint8, cases)
        both = viewer.examine(torch.cat([images, as_uint8]), [*cases, *cases])
        return both[: len(cases)], both[len(cases) :]


@dataclass(frozen=True, eq=False)
class _Piece:
    """What is made together for one batch: clean images, a corruption, or an attack on a model (a control: on none)."""

    target: Target | None
    aimed: Aimed | None
    corruption: str | None


def _trace(found: AttackResult, place: int) -> AttackTrace:
    return AttackTrace(
        start=float(found.initial_loss[place]),
        end=float(found.final_loss[place]),
        broken=bool(found.succeeded[place]),
        linf=float(found.linf[place]),
        l2=float(found.l2[place]),
        passes=int(found.passes[place]),
        zero_gradients=float(found.zero_gradients[place]),
    )


def universal_change(
    run: Run, cases: Cases, target: Target, aim: str, budget: Budget, shape: tuple[int, ...], config: RobustnessConfig,
    batch_size: BatchSize,
) -> Tensor:  # fmt: skip
    """[1, C, H, W]: made of the first `universal_images` images of this shape in another split, or read where it was.

    Args:
        run: The open run.
        cases: Of the audit; their corpus has the other splits.
        target: The model that it is made for.
        aim: What it wants.
        budget: Its radius.
        shape: C, H and W of the images.
        config: Settings.
        batch_size: Images at once.
    """
    from cxrlab.attacks.gradient import make_universal

    size = "x".join(map(str, shape))
    path = run.path(f"universal/{target.key}_{aim}_{budget.label.replace('/', '-')}_{size}.npy")
    if path.is_file():
        return torch.from_numpy(np.load(path)).to(target.device)
    split = "train" if config.split != "train" else "val"
    tested = {case.patient for case in cases.all}
    ids = cases.corpus.ids(split)
    order = generator(config.seed, "universal").permutation(len(ids))[: 4 * config.attack.universal_images].tolist()
    others = [case for case in cases.of([ids[place] for place in order]) if case.patient not in tested]
    told = aim != REPORT or config.against == "own" or not target.scores  # whether a study may lack a report
    chosen: list[Case] = []
    radiographs: list[Tensor] = []
    for case in others:
        ready = image_tensor(cases.image(case))
        if tuple(ready.shape) == shape and len(chosen) < config.attack.universal_images and (told or case.reference):
            chosen.append(case)
            radiographs.append(ready)
    if not chosen:
        lacking = "" if told else " with a report"
        raise DataError(
            f"the {split} split has no image of {shape[-2]} × {shape[-1]} pixels{lacking} to make a universal "
            "perturbation of; give --image-size, so that all images have one size."
        )
    images = torch.stack(radiographs).to(target.device)
    rows = range(len(chosen))
    clean = batch_size.map(rows, lambda some: target.examine(images[list(some)], [chosen[row] for row in some]))
    objective = target.objective(aim, chosen, clean, images)
    keys = [case.id for case in chosen]
    made = make_universal(objective, images, budget, config.attack, keys=keys, seed=config.seed, batch_size=batch_size)
    stream = io.BytesIO()
    np.save(stream, made.detach().cpu().numpy())
    run.write(str(path.relative_to(run.folder)), stream.getvalue())
    return made
