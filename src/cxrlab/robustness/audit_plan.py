"""Plan an audit: time each attack, radius and corruption on one batch of its studies, in a scratch folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.attacks.config import ATTACKS, AttackSettings
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.plan import Plan, Work, scratch_folder
from cxrlab.core.runs import Run, progress
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.generate import select_studies
from cxrlab.models.hf.gradient_memory import memory_of_sizes, plan_gradients
from cxrlab.models.hf.operations import GRADIENT, PREFILL, Gpus, open_sizes, shape_of
from cxrlab.robustness.audit import prepare_audit
from cxrlab.robustness.audit_records import ANSWERS_FILE, CLEAN, answer_id
from cxrlab.robustness.config import OPERATIONAL, RobustnessConfig
from cxrlab.robustness.sweep import (
    UNIVERSAL,
    AttackWithGoal,
    Control,
    Corruption,
    ModelAttack,
    Sweep,
    WorkItem,
    follows_gradients,
    group_by_shape,
    image_batch,
)

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.attacks.attack import AttackResult
    from cxrlab.robustness.audit_records import Answer
    from cxrlab.robustness.audited_models import AuditedModel
    from cxrlab.robustness.audited_studies import Case, Cases

_STARTS = 2  # restarts that are timed: several are compared by their loss, one is not
_FEW, _MORE = {"steps": 1, "queries": 2}, {"steps": 3, "queries": 6}  # efforts that are timed


def plan_audit(config: RobustnessConfig, out: Path | None = None) -> Plan:
    """Time every work item of the sweep on one batch, with few steps and queries, and multiply by the sweep's counts.

    A model behind an address is not called: its requests are counted.

    Args:
        out: A run folder that may hold a part of the audit already.
    """
    state = progress(out, config, seed=config.seed, operational=OPERATIONAL)
    if state == "finished":
        return Plan("robustness", ())
    cases, models = prepare_audit(config)
    done = set()
    if state == "begun" and out is not None and (out / ANSWERS_FILE).is_file():
        done = {str(line["id"]) for _, line in read_jsonl(out / ANSWERS_FILE)}
    remote = [model for model in models if getattr(getattr(model, "model", None), "capabilities", None) is not None
              and model.model.capabilities.black_box]  # type: ignore[attr-defined]  # fmt: skip
    plain = replace(config, triptychs=0)
    with scratch_folder() as folder, Run.open(folder / "run", plain, seed=config.seed) as run:
        items = list(Sweep(run, cases, models, plain).work_items())
        controls = min(len(cases), config.control_studies) * len(config.controls)
        if remote:
            work, notes = _requests(items, cases, models, remote, config, done, controls)
            return Plan("robustness", tuple(work), left_out=tuple(notes))
        group = max(group_by_shape([cases.image(case) for case in cases.batches()[0]]), key=len)
        batch = [cases.batches()[0][place] for place in group]
        size = BatchSize(config.batch_size)

        def measure(number: int) -> list[Work]:
            timing = _Timing(run, cases, models, plain, batch[:number])
            return [_work_of(timing, item, cases, done) for item in items] + timing.more(controls)

        work = size.retry(measure, len(batch))
    return Plan(
        "robustness",
        tuple(work),
        facts={"batch": size.current, "studies": len(cases)},
        left_out=(
            "loading the models, triptychs and the intervals of the conclusions.",
            *(
                ("images that an attack breaks early cost less (attack.early_exit).",)
                if config.attack.early_exit
                else ()
            ),
        ),
    )


def estimate_audit(config: RobustnessConfig, gpus: Gpus) -> Plan:
    """The audit from sizes alone, on the studies of its split; the models need their config.json alone."""
    ids = select_studies(load_corpus(config.data), config.split, config.n, config.seed)
    models = [open_sizes(name) for name in (config.model, *config.versus)]
    return audit_of_sizes(config, models, gpus, len(ids))


def audit_of_sizes(
    config: RobustnessConfig, models: Sequence[Any], gpus: Gpus, studies: int, prompt: int = 60, report: int = 100
) -> Plan:
    """So many studies; every model is attacked, and examined on the images made for each.

    Args:
        models: LLaVAs on the device `meta`.
        prompt: Tokens beside the image.
        report: Tokens of the report whose probability an attack changes.
    """
    gradients, conditions = effort(config)
    work, needed, at_once = [], 0.0, config.batch_size
    for number, model in enumerate(models, start=1):
        shape, weights = shape_of(model, features_kept=False), sum(value.numel() for value in model.parameters())
        tokens = shape.image_tokens + prompt
        memory = memory_of_sizes(model.config, weights, 2, tokens + report, shape.image_tokens, report)
        room = int(gpus.each.memory - 2 * weights * len(models))
        micro = plan_gradients(memory, config.batch_size, room)
        at_once = min(at_once, micro.images)
        needed += 2 * weights
        largest = micro.images * micro.per_image
        each = gpus.seconds(shape.gradient(tokens + report, report), GRADIENT)
        name = "" if len(models) == 1 else f" of model {number}"
        work.append(Work(f"gradients{name}", "gradient", studies * gradients, each))
        generated = shape.report_seconds(gpus, tokens, config.decoding.max_new_tokens, config.batch_size)
        answers = gpus.seconds(shape.forward(tokens, 1), PREFILL)
        views = studies * (conditions if len(models) == 1 else 1 + (conditions - 1) * len(models))
        work.append(Work(f"reports with closed answers{name}", "image", views, generated + answers))
    facts = {**gpus.facts(needed + largest), "gradients_per_image": gradients, "conditions": conditions,
             "images_at_once": at_once}  # fmt: skip
    notes = (
        "attacks without gradients, images in 8 bits and the forward passes that judge success.",
        "reports that end before their longest length take less.",
    )
    return Plan("robustness", tuple(work), None, (needed + largest) / 1e9, facts=facts, left_out=notes)


def effort(config: RobustnessConfig) -> tuple[int, int]:
    """Gradients of one image, and the conditions under which it is examined, the clean one included."""
    attack, radii = config.attack, len(config.eps)
    kinds = {name: ATTACKS.load(name) for name in config.attacks}
    controls = [name for name, kind in kinds.items() if kind.is_control]
    steps = {"fgsm": 1}
    gradients = sum(
        steps.get(name, attack.steps * attack.restarts)
        for name in kinds
        if name not in controls and follows_gradients(name)
    )
    attacked = radii * ((len(kinds) - len(controls)) * len(config.aims) + len(controls))
    corruptions = len(config.corrupted) * len(config.severities)
    return radii * len(config.aims) * gradients, 1 + attacked + corruptions


def _work_of(timing: _Timing, item: WorkItem, cases: Cases, done: set[str]) -> Work:
    """The work of one item: an image under one of its conditions takes what it took in the measured batch."""
    count, finished = len(cases) * len(item.conditions), _done(item, cases, done)
    name = item.conditions[0].partition("@")[0]
    if isinstance(item, ModelAttack) and len(timing.models) > 1:
        name = f"{name} on {item.model.key}"
    if isinstance(item, (ModelAttack, Control)):
        targets = [item.model] if isinstance(item, ModelAttack) else item.viewers
        each = sum(timing.attack(item.attack, model, item.viewers) for model in targets)
    else:
        each = sum(timing.clean[model.key] for model in item.viewers)
        if isinstance(item, Corruption):
            each += timing.corruption(item)
    return Work(f"{name} images", "image", count, each / len(timing.batch), finished, measured=len(timing.batch))


def _done(item: WorkItem, cases: Cases, done: set[str]) -> int:
    """Images of an item that every viewer has examined."""
    return sum(
        all(answer_id(viewer.key, condition, case.id, item.crafted_on) in done for viewer in item.viewers)
        for condition in item.conditions
        for case in cases.all
    ) if done else 0  # fmt: skip


class _TimedSweep(Sweep):
    """A sweep that counts the seconds of examining images, and the forward passes per image of its attack."""

    seconds, passes = 0.0, 0.0

    def examine(
        self, condition: str, cases: Sequence[Case], images: Tensor, viewers: Sequence[AuditedModel],
        crafted_on: str | None = None, result: AttackResult | None = None,
    ) -> Iterator[Answer]:  # fmt: skip
        """What each model returns for the images."""
        start = time.perf_counter()
        answers = list(super().examine(condition, cases, images, viewers, crafted_on, result))
        self.seconds += time.perf_counter() - start
        self.passes = float(result.passes.double().mean()) if result is not None else 0.0
        return iter(answers)


@dataclass(eq=False)
class _Timing:
    """Seconds of the parts of a sweep on one batch, measured when they are first needed.

    Attributes:
        clean: Model's key → examining clean images.
        plain: Model's key → examining them without those in 8 bits.
    """

    run: Run
    cases: Cases
    models: Sequence[AuditedModel]
    config: RobustnessConfig
    batch: Sequence[Case]

    def __post_init__(self) -> None:
        self.images: Tensor = image_batch([self.cases.image(case) for case in self.batch])
        sweep = Sweep(self.run, self.cases, self.models, self.config)
        done, self.clean, self.plain = self.run.done(ANSWERS_FILE), {}, {}
        self.extra: list[Work] = []
        self._after: dict[tuple[str, str | None], float] = {}
        for model in self.models:
            answers = list(sweep.examine(CLEAN, self.batch, self.images, [model]))  # also warms the model up
            for answer in answers:
                if answer.id not in done:
                    self.run.append(ANSWERS_FILE, answer)
            self.clean[model.key] = self._seconds(partial(self._examined, sweep, model))
            self.plain[model.key] = self._seconds(partial(self._examined, sweep, model, in_8_bits=False))
        self.sweep = Sweep(self.run, self.cases, self.models, self.config)  # now with the answers to clean images

    def _examined(self, sweep: Sweep, model: AuditedModel, *, in_8_bits: bool = True) -> None:
        if in_8_bits:
            list(sweep.examine(CLEAN, self.batch, self.images, [model]))
        else:
            model.examine(self.images.to(model.device), self.batch)

    def _seconds(self, call: Callable[[], Any]) -> float:
        for model in self.models:
            model.clear_cache()
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def corruption(self, item: Corruption) -> float:
        """Corrupting the batch once."""
        from cxrlab.attacks.corruptions import corrupt

        severity, seed = self.config.severities[0], self.config.seed
        images = [self.cases.image(case) for case in self.batch]
        return self._seconds(
            lambda: [
                corrupt(item.name, image, severity, key=case.id, seed=seed)
                for case, image in zip(self.batch, images, strict=True)
            ]
        )

    def attack(self, attack: AttackWithGoal, model: AuditedModel, viewers: Sequence[AuditedModel]) -> float:
        """The attack at one radius with its whole effort, and what the viewers return for its images."""
        full = self.config.attack
        axes = _axes(attack.attack, model)
        if attack.attack == UNIVERSAL:
            self._universal(attack, model)
        least = {axis: min(_FEW[axis], _full(full, axis)) for axis in axes}
        seconds, passes = self._run(attack, model, least)
        base = seconds
        for axis in axes:
            few, whole = least[axis], _full(full, axis)
            more = min(_MORE[axis], whole)
            if more == few:
                continue
            longer, spent = self._run(attack, model, {**least, axis: more})
            if spent > passes:  # fgsm takes one step, whatever the settings
                seconds += max(0.0, longer - base) * (whole - few) / (more - few)
        if "steps" in axes:
            seconds *= full.restarts / min(full.restarts, _STARTS)
        return seconds + sum(
            self._examining(attack, model) if one is model else self.plain[one.key]
            for one in ([model] if attack.aim is None else viewers)
        )

    def _run(self, attack: AttackWithGoal, model: AuditedModel, changes: dict[str, Any]) -> tuple[float, float]:
        """Seconds of the attack alone at one radius with these settings, and forward passes per image."""
        sweep = self._sweep(changes)
        seconds = self._seconds(lambda: list(sweep.attack(attack, model, self.batch, self.images, (), None)))
        return seconds, sweep.passes

    def _sweep(self, changes: dict[str, Any]) -> _TimedSweep:
        """A sweep of one radius whose attacks have these settings."""
        attack = self.config.attack
        changed = replace(attack, **{"restarts": min(attack.restarts, _STARTS), **changes})
        return _TimedSweep(
            self.run, self.cases, self.models, replace(self.config, eps=self.config.eps[:1], attack=changed)
        )

    def _examining(self, attack: AttackWithGoal, model: AuditedModel) -> float:
        """Examining what an attack with this aim has made; a part of it is cached, since the attack checks success."""
        key = model.key, attack.aim
        if key not in self._after:
            sweep = self._sweep(_FEW)
            list(sweep.attack(attack, model, self.batch, self.images, [model], None))
            self._after[key] = sweep.seconds
        return self._after[key]

    def _universal(self, attack: AttackWithGoal, model: AuditedModel) -> None:
        """Time the making of a universal perturbation on a batch of other images, in one pass over them."""
        small = {"universal_images": len(self.batch), "universal_epochs": 1}
        made = self._run(attack, model, small)[0] - self._run(attack, model, small)[0]  # the second finds it made
        settings, each = self.config.attack, max(0.0, made) / len(self.batch)
        count = settings.universal_images * settings.universal_epochs * len(self.config.budgets)
        name = f"making universal changes{'' if len(self.models) == 1 else f' on {model.key}'}, aim {attack.aim}"
        self.extra.append(Work(name, "image", count, each, measured=len(self.batch)))

    def more(self, controls: int) -> list[Work]:
        """Work beside the sweep."""
        each = sum(self.plain.values()) / len(self.batch)
        beside = (("control images", controls), ("calibration studies, at most", self.config.calibration_studies))
        return [*self.extra, *(Work(name, "image", count, each) for name, count in beside if count)]


def _axes(attack: str, model: AuditedModel) -> list[str]:
    """The settings that decide how long an attack takes."""
    kind = ATTACKS.load(attack)
    if kind.is_control or attack == UNIVERSAL:
        return []
    gradients = follows_gradients(attack) and model.gradients
    return [*(["steps"] if gradients else []), *([] if kind.white_box else ["queries"])]


def _full(settings: AttackSettings, axis: str) -> int:
    return settings.steps if axis == "steps" else settings.queries


def _requests(
    items: Sequence[WorkItem], cases: Cases, models: Sequence[AuditedModel], remote: Sequence[AuditedModel],
    config: RobustnessConfig, done: set[str], controls: int,
) -> tuple[list[Work], list[str]]:  # fmt: skip
    """Requests to models behind an address, at most: an answer to the same image is requested once."""
    work = []
    for item in items:
        views = 0
        for viewer in item.viewers:
            if viewer in remote:
                own = item.crafted_on in (None, viewer.key)
                views += 2 if own and config.uint8 and not config.rounded else 1
        if isinstance(item, ModelAttack) and item.model in remote and not ATTACKS.load(item.attack.attack).is_control:
            views += config.attack.queries
        count, had = len(cases) * len(item.conditions), _done(item, cases, done)
        name = item.conditions[0].partition("@")[0]
        tokens = config.decoding.max_new_tokens * views * (count - had)
        work.append(Work(f"{name} images", "request", views * count, done=views * had, answer_tokens=tokens))
    if controls:
        work.append(Work("control images", "request", controls * len(remote)))
    notes = ["tokens of prompts and images, which the server counts.", "an image seen before is not sent again."]
    if len(remote) < len(models):
        notes.append("the time of the models on this machine: name them alone to measure it.")
    return work, notes
