"""What has to be made for a study of extraction: models, victims' reports, attacks, detection, defences; each once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.config import flatten
from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.json_values import plain
from cxrlab.extraction.config import ExtractConfig
from cxrlab.extraction.defence.config import DefendConfig
from cxrlab.extraction.detection.config import DetectConfig
from cxrlab.studies.extraction_config import ATTACK, MADE, STREAMS, ExtractionStudyConfig, ExtractionVariant
from cxrlab.studies.parts import Part, Parts
from cxrlab.studies.run_study import merged
from cxrlab.studies.study_corpora import pool_with_folders, with_folders
from cxrlab.training.config import FinetuneConfig

# Names of the parts, which are also their folders.
MODEL, VICTIM, EXTRACT, DETECT, DEFEND = "models", "victims", "extract", "detect", "defend"
CHECKPOINT, CACHE = "checkpoint", "cache"
ATTACK_FILE, KEY_FILE = "attack.yaml", "watermark.key"
# What the study sets itself.
_OWN: Mapping[str, tuple[str, ...]] = {
    MODEL: ("cache",),
    EXTRACT: ("data", "seed", "victim_run", "measure.metrics", "measure.seed"),
    DETECT: ("stream", "seed"),
    DEFEND: ("victim", "data", "surrogate", "attack", "method", "pool", "budget", "seed", "price", "loading"),
}
# Settings that decide what the victim writes on the corpus and how that is scored.
_OF_VICTIM = ("victim", "data", "split", "n", "seed", "batch_size", "victim_decoding", "loading", "measure",
              "i_am_authorised")  # fmt: skip
_MADE = re.compile(rf"\b{MADE}([A-Za-z0-9_-]+)")


@dataclass(frozen=True)
class ExtractionTrial:
    """One variant with one seed.

    Args:
        variant: Its name.
        seed: Of all that is drawn.
        extract: Run folder of the attack, within the study; variants with equal settings share it.
        victim: Run folder of what its victim writes on the corpus.
    """

    variant: str
    seed: int
    extract: str
    victim: str

    @property
    def id(self) -> str:
        """Its name among all."""
        return f"seed{self.seed}/{self.variant}"


@dataclass(frozen=True)
class ExtractionPlan:
    """Parts in the order in which they can be made, and the trials that use them.

    Args:
        parts: Of all seeds.
        trials: Of all seeds.
    """

    parts: tuple[Part, ...]
    trials: tuple[ExtractionTrial, ...]

    def part(self, folder: str) -> Part:
        """The part with this folder."""
        return next(part for part in self.parts if part.folder == folder)

    def trial(self, variant: str, seed: int) -> ExtractionTrial:
        """The trial of this variant and seed."""
        return next(trial for trial in self.trials if (trial.variant, trial.seed) == (variant, seed))


def plan(config: ExtractionStudyConfig, folders: Mapping[str, Path], out: Path) -> ExtractionPlan:
    """Resolve every variant and seed into parts with checked settings; nothing is run.

    Args:
        config: Settings of the study.
        folders: Name → folder of each corpus.
        out: Folder of the study.
    """
    desk = _Desk(config, folders, out)
    for name, settings in config.models.items():
        desk.model(name, settings)
    trials = [desk.trial(name, variant, seed) for seed in config.seeds for name, variant in config.chosen().items()]
    found = ExtractionPlan(tuple(desk.parts), tuple(trials))
    desk.parts.problems += [*_unknown_metrics(config.metrics), *_apart(config, found)]
    desk.parts.checked()  # what is wrong so far would be told again by what stands on it
    desk.watched(found)
    desk.defended(found)
    return ExtractionPlan(desk.parts.checked(), tuple(trials))


class _Desk:
    """Where variants become parts."""

    def __init__(self, config: ExtractionStudyConfig, folders: Mapping[str, Path], out: Path) -> None:
        self.config, self.folders, self.out = config, folders, out
        self.parts = Parts()
        self.made: dict[str, str] = {}  # name of a model → its folder within the study

    def model(self, name: str, settings: Any) -> None:
        """A model of the study; it may start from an earlier one."""
        place, folder = f"models, '{name}'", f"{MODEL}/{name}"
        given, needs = self._resolved(settings, MODEL, place)
        if isinstance(given, Mapping):
            given = {**given, "cache": str(self.out / CACHE)}
        self.parts.once(MODEL, self.config.seeds[0], folder, FinetuneConfig, given, place, needs)
        self.made[name] = folder

    def trial(self, name: str, variant: ExtractionVariant, seed: int) -> ExtractionTrial:
        """One attack, and before it what its victim writes on the corpus."""
        place = f"extract of '{name}'"
        given, needs = self._resolved(merged(self.config.extract, variant.extract), EXTRACT, place)
        own = {
            "data": str(self.folders[self.config.data]),
            "seed": seed,
            "measure": {"metrics": list(self.config.metrics), "seed": seed},
        }
        asked = merged(given, {key: value for key, value in own.items() if _fits(given, key, value)})
        about = {key: asked[key] for key in _OF_VICTIM if key in asked}
        victim = self.parts.once(VICTIM, seed, f"seed{seed}/{VICTIM}/{name}", ExtractConfig, about, place, needs)
        asked["victim_run"] = str(self.out / victim.folder)
        folder = f"seed{seed}/{EXTRACT}/{name}"
        attack = self.parts.once(EXTRACT, seed, folder, ExtractConfig, asked, place, (*needs, victim.folder))
        return ExtractionTrial(name, seed, attack.folder, victim.folder)

    def watched(self, found: ExtractionPlan) -> None:
        """Detectors over the queries of the first seed."""
        if not self.config.detect:
            return
        seed = self.config.seeds[0]
        rest = {key: value for key, value in self.config.detect.items() if key != STREAMS}
        given, _ = self._resolved({"benign": self.config.data, **rest}, DETECT, DETECT)
        streams = list(dict.fromkeys(found.trial(name, seed).extract for name in self.config.streams))
        asked = {**given, "stream": [str(self.out / folder) for folder in streams], "seed": seed}
        self.parts.once(DETECT, seed, DETECT, DetectConfig, asked, DETECT, tuple(streams))

    def defended(self, found: ExtractionPlan) -> None:
        """Each defence of the first seed in a part of its own, against the attack of one variant."""
        if self.config.attack is None:
            return
        trial = found.trial(self.config.attack, self.config.seeds[0])
        base: ExtractConfig = found.part(trial.extract).config
        rest = {key: value for key, value in self.config.defend.items() if key != ATTACK}
        given, needs = self._resolved(rest, DEFEND, DEFEND)
        copied = ("victim", "data", "surrogate", "method", "pool", "budget", "seed", "price", "loading")
        own = {key: plain(getattr(base, key)) for key in (*copied, "i_am_authorised")}
        usual: dict[str, Any] = {"batch_size": base.batch_size, "settings": {"key_file": str(self.out / KEY_FILE)}}
        if base.victim.startswith(("hf:", "builtin:")):  # others choose their words themselves
            usual["decoding"] = plain(base.victim_decoding)
        asked = {**merged(usual, given), **own, "attack": str(self.out / ATTACK_FILE)}
        before = (*needs, *found.part(trial.extract).needs, trial.extract)
        for name in given.get("defences", DefendConfig.defences):
            one = {**asked, "defences": [name]}
            self.parts.once(DEFEND, trial.seed, f"seed{trial.seed}/{DEFEND}/{name}", DefendConfig, one, DEFEND, before)

    def _resolved(self, given: Any, kind: str, place: str) -> tuple[Any, tuple[str, ...]]:
        """Settings with corpora and models of the study by folder, and the models that they need."""
        if not isinstance(given, Mapping):
            return given, ()  # refused where it becomes a config
        self.parts.problems += [
            f"{place}: '{key}' is set by the study itself; leave it out." for key in _OWN[kind] if key in flatten(given)
        ]
        try:
            return self._by_folder({"data": self.config.data, **given} if kind == MODEL else given, kind, place)
        except ConfigError as error:
            self.parts.problems.append(str(error))
            return given, ()

    def _by_folder(self, given: Mapping[str, Any], kind: str, place: str) -> tuple[dict[str, Any], tuple[str, ...]]:
        result = with_folders(given, self.folders, place) if kind == MODEL else dict(given)
        needs: dict[str, None] = {}
        for key in ("victim", "surrogate", "start", "encoder", "language_model"):
            if isinstance(name := result.get(key), str):
                needs |= dict.fromkeys(self._made(found, place) for found in _MADE.findall(name))
                result[key] = _MADE.sub(lambda one: f"hf:{self.out / self.made[one[1]] / CHECKPOINT}", name)
        if isinstance(pool := result.get("pool"), str):
            result["pool"] = pool_with_folders(pool, self.folders, place)
        if "benign" in result:
            result["benign"] = with_folders({"data": result["benign"]}, self.folders, place)["data"]
        if isinstance(chest := result.get("chest"), str):  # an image of a corpus, such as query/images/p000000s1.png
            name, _, image = chest.partition("/")
            result["chest"] = str(self.folders[name] / image) if name in self.folders and image else chest
        for key in ("defence_settings", "settings"):
            if isinstance(group := result.get(key), Mapping):
                result[key] = self._by_folder(group, kind, place)[0]
        return result, tuple(needs)

    def _made(self, name: str, place: str) -> str:
        if name not in self.made:
            raise ConfigError(f"{place}: the study makes no model '{name}' before it.{did_you_mean(name, self.made)}")
        return self.made[name]


def _fits(given: Mapping[str, Any], key: str, value: Any) -> bool:
    """Whether the study's value may go there; a value in the place of a group is left to be refused."""
    return not isinstance(value, Mapping) or isinstance(given.get(key, {}), Mapping)


def _unknown_metrics(metrics: Sequence[str]) -> Iterator[str]:
    """What is wrong with the columns of the tables: each must be one metric that needs no weights."""
    from cxrlab.evaluation.metric_choice import select_metrics

    for name in metrics:
        try:
            if (found := select_metrics((name,)).ready) != (name,):
                yield f"metrics: '{name}' stands for {len(found)} metrics; name them one by one."
        except ConfigError as error:
            yield f"metrics: {error}"


def _apart(config: ExtractionStudyConfig, found: ExtractionPlan) -> Iterator[str]:
    """Comparisons of what was not measured on the same studies, or not of the same victim."""
    seed = config.seeds[0]
    configs = {trial.variant: found.part(trial.extract).config for trial in found.trials if trial.seed == seed}
    groups = [*(("contrasts", pair) for pair in config.contrasts), *(("pairwise", pair) for pair in config.pairwise)]
    for what, names in [*groups, ("controls", config.controls)]:
        known = [configs[name] for name in names if configs[name] is not None]
        if len({(one.split, one.n) for one in known}) > 1:
            yield f"{what}: {', '.join(names)} are not measured on the same studies; give them the same split and n."
    if len({found.trial(name, seed).victim for name in config.controls}) > 1:
        yield f"controls: {', '.join(config.controls)} do not have the same victim, measured in the same way."
