"""Plan a study: the plan of one run of each kind and variant, times the seeds; what the study makes first is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cxrlab.core.config import parse_group
from cxrlab.core.environment import usable_cores
from cxrlab.core.json_values import plain
from cxrlab.core.plan import Plan, Work
from cxrlab.core.registry import load_reference
from cxrlab.core.runs import state
from cxrlab.robustness.config import RobustnessConfig
from cxrlab.studies.engine import CACHE, Part, StudyRecipe

_SEED = re.compile(r"^seed\d+/")
# Function that runs a part → module:function of its plan; one that takes a stage is given it.
_PLANS = MappingProxyType(
    {
        "cxrlab.training.encoder:train_encoder": ("cxrlab.training.training_plan:plan_encoder_training", None),
        "cxrlab.training.align_finetune:align": ("cxrlab.training.training_plan:plan_report_training", "align"),
        "cxrlab.training.align_finetune:finetune": ("cxrlab.training.training_plan:plan_report_training", "finetune"),
        "cxrlab.evaluation.generate:generate": ("cxrlab.evaluation.generation_plan:plan_generation", None),
        "cxrlab.evaluation.score:run_score": ("cxrlab.evaluation.score_plan:plan_score", None),
        "cxrlab.preference.sample_candidates:sample": ("cxrlab.preference.sample_candidates:plan_sampling", None),
        "cxrlab.preference.judge_candidates:judge": ("cxrlab.preference.judge_candidates:plan_judging", None),
        "cxrlab.preference.train:prefer": ("cxrlab.preference.alignment_plan:plan_alignment", None),
        "cxrlab.robustness.harden:harden": ("cxrlab.robustness.harden:plan_hardening", None),
        "cxrlab.robustness.audit:audit": ("cxrlab.robustness.audit_plan:plan_audit", None),
        "cxrlab.extraction.audit:extract": ("cxrlab.extraction.extraction_plan:plan_extraction", None),
    }
)
_DRAWN = MappingProxyType(
    {
        "phantom": ("cxrlab.data.config:PhantomConfig", "cxrlab.data.phantom.corpus:plan_phantom"),
        "scenes": ("cxrlab.data.config:ScenesConfig", "cxrlab.data.synthetic_scenes:plan_scenes"),
    }
)


def plan_study(recipe: StudyRecipe) -> Plan:
    """The sum of the plans of all runs that are left.

    Runs that differ by their seed alone have one plan. Where a run needs a model that the study makes first, the model
    from which that one is trained stands in. Runs that need other files of the study are named.
    """
    recipe.check()
    at_once = min(getattr(recipe.config, "at_once", 1), usable_cores())
    work, notes = _corpora(recipe)
    groups: dict[str, list[Part]] = {}
    for part in recipe.parts:
        groups.setdefault(_SEED.sub("", part.folder), []).append(part)
    stand_ins: list[str] = []
    disk = 0.0
    for name, parts in groups.items():
        left = [part for part in parts if state(recipe.out / part.folder) != "finished"]
        if not left:
            continue
        kind = getattr(recipe, "kinds", {}).get(left[0].kind)
        runs = f"{len(left)} run{'' if len(left) == 1 else 's'} of {name}"
        if kind is None or kind.run not in _PLANS:
            notes.append(f"{runs}: it has no plan.")
            work.append(Work(name, "run", len(parts), done=len(parts) - len(left)))
            continue
        config, models = _with_stand_ins(recipe, left[0].config)
        if absent := _absent(recipe, config):
            notes.append(f"{runs}: needs {absent}, which the study makes first; plan again when it is there.")
            work.append(Work(name, "run", len(parts), done=len(parts) - len(left)))
            continue
        stand_ins += [name] * bool(models)
        several = 1
        if isinstance(config, RobustnessConfig) and models and config.versus:
            several = 1 + len(config.versus)
            config = replace(config, versus=())
            notes.append(f"{runs}: what {several} models return for images made for another.")
        target, stage = _PLANS[kind.run]
        make: Callable[..., Plan] = load_reference(target)
        found = (make if stage is None else partial(make, stage))(config, recipe.out / left[0].folder)
        for one in found.work:
            work.append(replace(one.times(several * len(left), f"{name}: "), at_once=min(at_once, len(left))))
        disk += len(left) * (found.disk_gb or 0.0)
    if stand_ins:
        notes.append(
            f"another speed of models that the study makes first; their starts stood in for {_listed(stand_ins)}."
        )
    done = sum(state(recipe.out / part.folder) == "finished" for part in recipe.parts)
    facts = {"runs": len(recipe.parts), "runs_finished": done, "runs_at_once": at_once}
    notes.append("loading models, tables and the page; runs side by side share cores and memory.")
    return Plan("study", tuple(work), disk_gb=disk or None, facts=facts, left_out=tuple(notes))


def _corpora(recipe: StudyRecipe) -> tuple[list[Work], list[str]]:
    """Corpora that the study draws, and names of others that it makes."""
    work, notes = [], []
    for name, row in recipe.corpus_rows().items():
        if isinstance(row, str) or recipe.corpora[name].is_dir():
            continue
        kind, values = next(iter(row.items()))
        if kind in _DRAWN:
            config, _ = parse_group(load_reference(_DRAWN[kind][0]), values, name)
            found: Plan = load_reference(_DRAWN[kind][1])(config)
            work += [replace(one, name=f"corpus {name}: {one.name}") for one in found.work]
        else:
            notes.append(f"the corpus {name} ({kind}).")
    return work, notes


def _with_stand_ins(recipe: StudyRecipe, config: Any) -> tuple[Any, bool]:
    """Settings in which models of the study are replaced by those from which they are trained, and whether any was."""
    found = False

    def start_of(name: str) -> str:
        nonlocal found
        path = Path(name.removeprefix("hf:"))
        if not path.is_relative_to(recipe.out) or path.exists():
            return name
        makers = [part for part in recipe.parts if path.is_relative_to(recipe.out / part.folder)]
        for part in makers:
            if start := getattr(part.config, "start", None) or getattr(part.config, "model", None):
                found = True
                return start_of(start)
        return name

    def changed(value: Any) -> Any:
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{one.name: changed(getattr(value, one.name)) for one in fields(value) if one.init})
        return start_of(value) if isinstance(value, str) else value

    versus = getattr(config, "versus", ())
    result = changed(config)
    made = [name for name in versus if start_of(name) != name]
    return result, found or bool(made)


def _absent(recipe: StudyRecipe, config: Any) -> str | None:
    """A file or folder of the study that settings name and that is not there yet; caches are made when needed."""

    def named(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [one for each in value.values() for one in named(each)]
        if isinstance(value, list):
            return [one for each in value for one in named(each)]
        return [value] if isinstance(value, str) else []

    ignored = recipe.out / CACHE
    settings = {name: value for name, value in plain(config).items() if name != "versus"}
    for name in named(settings):
        path = Path(re.sub(r"^\w+:", "", name))
        if path.is_relative_to(recipe.out) and path != ignored and not path.exists():
            return path.relative_to(recipe.out).as_posix()
    return None


def _listed(names: list[str]) -> str:
    return ", ".join(dict.fromkeys(names))
