"""What has to be made for a study of alignment: start, candidates, rewards, pairs and trainings, each of them once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from cxrlab.core.config import flatten
from cxrlab.core.errors import ConfigError
from cxrlab.core.json_values import dumps
from cxrlab.evaluation.config import MetricResources
from cxrlab.preference.config import JudgeConfig, PairConfig, PreferConfig, SampleConfig
from cxrlab.robustness.config import RobustnessConfig
from cxrlab.studies.parts import Part, Parts
from cxrlab.studies.preference_config import AlignmentVariant, PreferenceStudyConfig
from cxrlab.studies.run_study import merged
from cxrlab.studies.study_corpora import with_folders
from cxrlab.training.config import FinetuneConfig

# Names of the parts, which are also their keys in the file and their folders below a seed.
START, SAMPLE, JUDGE, PAIR, TRAIN, BEFORE = "start", "sample", "judge", "pair", "train", "before"
ROBUSTNESS = "robustness"
CHECKPOINT, CACHE = "checkpoint", "cache"
_CONFIGS: Mapping[str, type[Any]] = {
    START: FinetuneConfig,
    SAMPLE: SampleConfig,
    JUDGE: JudgeConfig,
    PAIR: PairConfig,
    TRAIN: PreferConfig,
    ROBUSTNESS: RobustnessConfig,
}
# What the study sets itself.
_OWN: Mapping[str, tuple[str, ...]] = {
    START: ("cache", "optimisation.seed"),
    SAMPLE: ("model", "data", "split", "seed"),
    JUDGE: ("candidates", "data", "seed"),
    PAIR: ("rewards", "feedback", "data", "seed"),
    TRAIN: (
        *("data", "pairs", "start", "cache", "optimisation.seed"),
        *("measure.data", "measure.split", "measure.metrics"),
    ),
    ROBUSTNESS: ("model", "versus", "data", "split", "seed"),
}


@dataclass(frozen=True)
class AlignmentTrial:
    """One variant with one seed.

    Args:
        variant: Its name.
        seed: Of all its parts.
        pair: Run folder of its pairs, within the study.
        train: Run folder of its training.
        robustness: Run folder of its audit; None where the study has none.
    """

    variant: str
    seed: int
    pair: str
    train: str
    robustness: str | None = None

    @property
    def id(self) -> str:
        """Its name among all."""
        return f"seed{self.seed}/{self.variant}"


@dataclass(frozen=True)
class AlignmentPlan:
    """Parts in the order in which they can be made, and the trials that use them.

    Args:
        parts: Of all seeds.
        trials: Of all seeds.
        before: Run folder of a training → folder of what its start wrote, shared by those that are measured alike.
    """

    parts: tuple[Part, ...]
    trials: tuple[AlignmentTrial, ...]
    before: Mapping[str, str]

    def part(self, folder: str) -> Part:
        """The part with this folder."""
        return next(part for part in self.parts if part.folder == folder)


def plan(config: PreferenceStudyConfig, folders: Mapping[str, Path], out: Path) -> AlignmentPlan:
    """Resolve every variant and seed into parts with checked settings; nothing is run.

    Args:
        config: Settings of the study.
        folders: Name → folder of each corpus.
        out: Folder of the study.
    """
    desk = _Desk(config, folders, out)
    trials = [desk.trial(name, variant, seed) for seed in config.seeds for name, variant in config.chosen().items()]
    desk.parts.problems += [*_unknown_metrics(config.metrics), *(line for part in desk.parts for line in _wrong(part))]
    parts = desk.parts.checked()
    before = _shared_starts(parts)
    return AlignmentPlan(tuple(_with_starts(parts, before)), tuple(trials), before)


class _Desk:
    """Where variants become parts."""

    def __init__(self, config: PreferenceStudyConfig, folders: Mapping[str, Path], out: Path) -> None:
        self.config, self.folders, self.out = config, folders, out
        self.parts = Parts()

    def trial(self, name: str, variant: AlignmentVariant, seed: int) -> AlignmentTrial:
        data, model = str(self.folders[self.config.data]), self.config.model
        started: tuple[str, ...] = ()
        if model is None:
            start = self._start(seed)
            model, started = f"hf:{self.out / start.folder / CHECKPOINT}", (start.folder,)
        drawn = {"model": model, "data": data, "split": "train", "seed": seed}
        sampled = self._part(SAMPLE, seed, None, {}, drawn, started)
        valued = {"candidates": [str(self.out / sampled.folder)], "data": data, "seed": seed}
        judged = self._part(JUDGE, seed, name, variant.judge, valued, (sampled.folder,))
        chosen = {"rewards": str(self.out / judged.folder), "seed": seed}
        paired = self._part(PAIR, seed, name, variant.pair, chosen, (judged.folder,))
        learnt = {
            "data": data,
            "pairs": str(self.out / paired.folder),
            "start": model,
            "cache": str(self.out / CACHE),
            "measure": {"split": "test", "metrics": list(self.config.metrics)},
            "optimisation": {"seed": seed},
        }
        trained = self._part(TRAIN, seed, name, variant.train, learnt, (paired.folder,))
        return AlignmentTrial(name, seed, paired.folder, trained.folder, self._audit(name, seed, model, trained))

    def _audit(self, name: str, seed: int, model: str, trained: Part) -> str | None:
        """The aligned model against its start on perturbed images."""
        if not self.config.robustness:
            return None
        aligned = f"hf:{self.out / trained.folder / CHECKPOINT}"
        data = str(self.folders[self.config.data])
        held = {"model": model, "versus": [aligned], "data": data, "split": "test", "seed": seed}
        return self._part(ROBUSTNESS, seed, name, {}, held, (trained.folder,)).folder

    def _start(self, seed: int) -> Part:
        """The model that this seed trains."""
        return self._part(START, seed, None, {}, {"cache": str(self.out / CACHE), "optimisation": {"seed": seed}})

    def _part(
        self,
        kind: str,
        seed: int,
        name: str | None,
        changed: Mapping[str, Any],
        own: Mapping[str, Any],
        needs: tuple[str, ...] = (),
    ) -> Part:
        place = f"{kind} of '{name}'" if name else kind
        given = merged(getattr(self.config, kind), changed)
        self.parts.problems += [
            f"{place}: '{key}' is set by the study itself; leave it out." for key in _OWN[kind] if key in flatten(given)
        ]
        if kind == START:
            try:
                given = with_folders({"data": self.config.data, **given}, self.folders, place)
            except ConfigError as error:
                self.parts.problems.append(str(error))
        folder = f"seed{seed}/{kind}/{name}" if name else f"seed{seed}/{kind}"
        return self.parts.once(kind, seed, folder, _CONFIGS[kind], _over(given, own), place, needs)


def _over(given: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings with those of the study; a value in the place of a group is left there to be refused."""
    kept = {
        key: value
        for key, value in own.items()
        if not isinstance(value, Mapping) or isinstance(given.get(key, {}), Mapping)
    }
    return merged(given, kept)


def _unknown_metrics(metrics: Sequence[str]) -> Iterator[str]:
    """What is wrong with the columns of the table: each must be one metric."""
    from cxrlab.evaluation.metric_choice import select_metrics

    for name in metrics:
        try:
            found = select_metrics((name,)).ready
        except ConfigError as error:
            yield f"metrics: {error}"
            continue
        if found != (name,):
            yield f"metrics: '{name}' stands for {len(found)} metrics; name them one by one."


def _wrong(part: Part) -> Iterator[str]:
    """What is wrong with a part beyond the form of its settings: a judge that does not exist, nothing to measure."""
    from cxrlab.preference.judge import chosen_judge
    from cxrlab.preference.judges import metric_judge

    config, place = part.config, f"{part.kind} of '{PurePosixPath(part.folder).name}'"
    try:
        if (
            isinstance(config, JudgeConfig) and config.extras == MetricResources()
        ):  # weights are loaded by the run alone
            chosen_judge(config)
        if isinstance(config, SampleConfig) and config.answers + config.greedy < 2:
            raise ConfigError("answers=1 leaves nothing to choose from; give at least 2.")
        if isinstance(config, PreferConfig):
            if not config.measure.n:
                raise ConfigError("measure.n=0 measures nothing, and the table would be empty; give a number from 1.")
            if config.validation.n:
                metric_judge(config.validation.judge)
    except ConfigError as error:
        yield f"{place}: {error}"


def _with_starts(parts: Sequence[Part], before: Mapping[str, str]) -> Iterator[Part]:
    """The parts, and before the first training that needs it what its start writes; it is asked once for all."""
    told: set[str] = set()
    for part in parts:
        if part.kind != TRAIN:
            yield part
            continue
        home = before[part.folder]
        if home not in told:
            told.add(home)
            starts = tuple(one.folder for one in parts if one.kind == START and one.seed == part.seed)
            yield Part(BEFORE, part.seed, home, part.config, starts)
        yield replace(part, needs=(*part.needs, home))


def _shared_starts(parts: Sequence[Part]) -> dict[str, str]:
    """Run folder of each training → where the reports of its start go: one folder for what is measured alike."""
    homes: dict[str, str] = {}
    found: dict[str, str] = {}
    for part in parts:
        if part.kind == TRAIN:
            name = PurePosixPath(part.folder).name
            key = dumps([part.seed, part.config.start, part.config.data, part.config.measure])
            found[part.folder] = homes.setdefault(key, f"seed{part.seed}/{BEFORE}/{name}")
    return found
