"""What has to be trained for a list of variants and seeds: every stage once, however many variants share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.studies.ablation_config import AblationsConfig, Variant
from cxrlab.studies.parts import Part, Parts
from cxrlab.studies.run_study import merged
from cxrlab.studies.study_corpora import with_folders

ENCODER, ALIGN, FINETUNE = "encoder", "align", "finetune"
CHECKPOINT = "checkpoint"
CACHE = "cache"


@dataclass(frozen=True)
class Trial:
    """One variant with one seed.

    Args:
        variant: Its name.
        seed: Of all its stages.
        folder: Where its reports and scores go, within the study.
        model: Run folder of the stage whose checkpoint writes the reports, within the study.
        parts: Run folders of its stages, in order.
        prompts: What the model is asked with; None for what it was trained with.
    """

    variant: str
    seed: int
    folder: str
    model: str
    parts: tuple[str, ...]
    prompts: str | None = None


@dataclass(frozen=True)
class Plan:
    """Parts in the order in which they can be trained, and the trials that use them."""

    parts: tuple[Part, ...]
    trials: tuple[Trial, ...]

    def of(self, seed: int) -> Plan:
        """The parts and trials of one seed; seeds share nothing."""
        return Plan(
            tuple(part for part in self.parts if part.seed == seed),
            tuple(trial for trial in self.trials if trial.seed == seed),
        )


def plan(config: AblationsConfig, folders: Mapping[str, Path], out: Path) -> Plan:
    """Resolve every variant and seed into stages with checked settings; nothing is run.

    Args:
        config: Settings of the study.
        folders: Name → folder of each corpus.
        out: Folder of the study.
    """
    desk = _Desk(config, folders, out)
    trials = [desk.trial(name, variant, seed) for seed in config.seeds for name, variant in config.chosen().items()]
    return Plan(desk.parts.checked(), tuple(trials))


class _Desk:
    """Where variants become parts."""

    def __init__(self, config: AblationsConfig, folders: Mapping[str, Path], out: Path) -> None:
        self.config, self.folders, self.out = config, folders, out
        self.parts = Parts()

    def trial(self, name: str, variant: Variant, seed: int) -> Trial:
        home = f"seed{seed}/{name}"
        used: list[str] = []
        start: dict[str, Any] = {"encoder": variant.vision_encoder or self.config.vision_encoder}
        start["language_model"] = variant.language_model or self.config.language_model
        if 1 in variant.stages:
            used.append(self._part(ENCODER, home, variant, seed, {"vision_encoder": start["encoder"]}))
            start["encoder"] = f"hf:{self.out / used[-1] / CHECKPOINT}"
        if variant.model is not None:
            start = {"start": variant.model}
        if 2 in variant.stages:
            used.append(self._part(ALIGN, home, variant, seed, start))
            start = {"start": str(self.out / used[-1])}
        if 3 in variant.stages:
            used.append(self._part(FINETUNE, home, variant, seed, start))
        return Trial(name, seed, home, used[-1], tuple(used), variant.prompts)

    def _part(self, kind: str, home: str, variant: Variant, seed: int, start: Mapping[str, Any]) -> str:
        """Folder of the stage with these settings, new or found among the earlier ones."""
        changed: Mapping[str, Any] = getattr(variant, kind)
        settings = merged(getattr(self.config, kind), changed)
        settings = merged(settings, {**start, "cache": str(self.out / CACHE), "optimisation": {"seed": seed}})
        place = f"{kind} of '{home}'"
        settings = with_folders(settings, self.folders, place)
        return self.parts.once(kind, seed, f"{home}/{kind}", _config(kind), settings, place).folder


def _config(kind: str) -> type[Any]:
    from cxrlab.training import config

    found: type[Any] = getattr(config, f"{kind.capitalize()}Config")
    return found
