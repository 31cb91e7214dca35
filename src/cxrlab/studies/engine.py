"""The engine of studies: plan every run once, make runs side by side, resume, sum up over seeds, write the page.

A study is made of variants and seeds. Each variant with one seed (a trial) needs some parts: runs with checked settings,
made once however many trials share them. A recipe (`StudyRecipe`) defines which parts a variant needs and which tables
are made of them; everything else is here. The folder of a study:

    corpora/NAME               corpora that the study makes
    seedS/…                    parts, named after the first variant that needs them
    trials.jsonl               one line per trial: its parts and what they measured
    *.json page.html           tables over seeds, and the page
"""

from __future__ import annotations

import multiprocessing
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from cxrlab.core.config import check_at_least, flatten, parse_group, raise_problems
from cxrlab.core.errors import ConfigError, CxrlabError, DataError, RunError, did_you_mean
from cxrlab.core.json_values import dumps, plain
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.registry import load_reference
from cxrlab.core.runs import Run, finished, state
from cxrlab.core.terminal import track
from cxrlab.data.corpus import load_corpus
from cxrlab.data.parallel import follow_parent, worker_count
from cxrlab.metrics.base import Family
from cxrlab.render.page import PAGE, write_page
from cxrlab.studies.corpora import corpus_folders, make_corpora, with_folders

CORPORA, TRIALS, SUMMARY, CHECKPOINT, CACHE = "corpora", "trials.jsonl", "summary.json", "checkpoint", "cache"
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Kind:
    """A kind of part."""

    config: str  # `"module:class"` of its settings
    run: str  # `"module:function"` that takes settings and run folder, continues a stopped run and keeps a finished one
    reserved: tuple[str, ...] = ()  # settings that nobody may give, beside those that the recipe sets


@dataclass(frozen=True)
class Part:
    """One run of a study: its kind, seed, run folder within the study, settings, and the folders it waits for.

    In the tour, a step, with its name for a folder.
    """

    kind: str
    seed: int
    folder: str
    config: Any
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trial:
    """One variant with one seed, and the folder of each of its parts by role ("train", "scores")."""

    variant: str
    seed: int
    parts: Mapping[str, str]

    @property
    def id(self) -> str:
        """Name among all trials."""
        return f"seed{self.seed}/{self.variant}"


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """Settings of every study of variants and seeds.

    Args:
        corpora: Name → folder of a corpus, or how to make one: phantom, scenes, out_of_domain, structured or composed with
            settings.
        variants: Name → what it changes.
        seeds: Each variant is run once with each of them.
        at_once: Most parts that run side by side, each in its own process, at most one per core. Small models leave a
            GPU waiting.
        metrics: Metrics in the tables, the most important first.
    """

    corpora: Mapping[str, Any]
    variants: Mapping[str, Any]
    seeds: tuple[int, ...] = (1, 2, 3)
    at_once: int = 1
    metrics: tuple[str, ...] = ()
    variant_class: ClassVar[type[Any]]
    fewest_variants: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ConfigError(f"seeds={list(self.seeds)} is not usable; list different whole numbers from 0.")
        check_at_least(self, at_once=1)
        if not self.metrics or len(set(self.metrics)) < len(self.metrics):
            raise ConfigError(f"metrics={list(self.metrics)} is not usable; name at least one, and each once.")
        self.check_names("corpora", self.corpora)
        self.check_names("variants", self.variants)
        if len(self.chosen()) < self.fewest_variants:
            raise ConfigError(f"variants has {len(self.variants)} rows; give at least {self.fewest_variants}.")

    def chosen(self) -> dict[str, Any]:
        """The variants by name, every setting checked; one `ConfigError` lists all problems."""
        return self.checked_rows("variants", self.variant_class)

    def checked_rows(self, setting: str, cls: type[Any]) -> dict[str, Any]:
        """Rows of a setting by name, as records of `cls`; one `ConfigError` lists all problems."""
        found, problems = {}, []
        for name, values in getattr(self, setting).items():
            found[name], wrong = parse_group(cls, values, f"{setting}, '{name}'")
            problems += wrong
        raise_problems(problems)
        return found

    def check_names(self, setting: str, names: Iterable[Any]) -> None:
        """Refuse names that cannot be folder names."""
        if wrong := [name for name in names if not isinstance(name, str) or not _FOLDER_NAME.fullmatch(name)]:
            raise ConfigError(f"{setting} has the name {wrong[0]!r}; use letters, digits, - and _ alone.")

    def check_corpus(self, setting: str) -> None:
        """Refuse a setting whose value is no corpus of the list."""
        if (name := getattr(self, setting)) not in self.corpora:
            raise ConfigError(f"{setting}='{name}' is not a corpus of the list.{did_you_mean(name, self.corpora)}")


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`; groups are merged key by key, and null removes a key."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(below, Mapping):
            result[key] = merged(below, value)
        else:
            result[key] = value
    return result


class StudyRecipe(ABC):
    """A planned study. Subclasses define the parts of a variant (`trial`) and the tables made of them (`results`).

    Making an instance plans the whole study and runs nothing; one `ConfigError` lists every problem of its settings.

    Attributes:
        kinds: Kind of part → its settings and the function that runs it.
        operational: Dotted settings that may differ when a study is continued.
        seed: Recorded in the run folder, for studies of a single seed.
        counts_parts: Whether a progress bar counts the parts; false where `make` logs each of them.
        parts: In an order in which they can be made.
    """

    config_class: ClassVar[type[Any]]
    title: str
    kinds: ClassVar[Mapping[str, Kind]]
    operational: tuple[str, ...] = ("at_once",)
    seed: int | None = None
    counts_parts: bool = True
    config: Any

    def __init__(self, config: Any, out: Path) -> None:
        self.config, self.out = config, out
        self.corpora = corpus_folders(self.corpus_rows(), out / CORPORA)
        self.parts: list[Part] = []
        self.trials: list[Trial] = []
        self.problems: list[str] = []
        self._parts_by_settings: dict[str, Part] = {}
        self.plan()
        self.raise_problems()

    def plan(self) -> None:
        """Fill `parts` and `trials`: every variant with every seed."""
        from cxrlab.evaluation.select_metrics import match_names

        for name in self.config.metrics:  # each is a column of a table
            try:
                named = match_names((name,), self.extra_families())
                if (found := named.ready + named.extra) != (name,):
                    self.problems.append(f"metrics: '{name}' stands for {len(found)} metrics; name them one by one.")
            except ConfigError as error:
                self.problems.append(f"metrics: {error}")
        for seed in self.config.seeds:
            for name, variant in self.config.chosen().items():
                self.trials.append(Trial(name, seed, self.trial(name, variant, seed)))

    def extra_families(self) -> Sequence[Family]:
        """Families of metrics that need graphs or weights which the settings give; only their cards are used."""
        return ()

    def needed_files(self) -> Sequence[Path]:
        """Files and folders of the user, beside corpora and models, without which the study cannot end."""
        return ()

    def corpus_rows(self) -> Mapping[str, Any]:
        """The corpora of the study, as its settings give them; none where it draws its own."""
        rows: Mapping[str, Any] = getattr(self.config, "corpora", {})
        return rows

    def trial(self, name: str, variant: Any, seed: int) -> Mapping[str, str]:
        """Add the parts of one variant with one seed; returns their folders by role."""
        raise NotImplementedError

    @abstractmethod
    def results(self, trials: list[Mapping[str, Any]]) -> dict[str, Any]:
        """Result files by name, from the lines of trials.jsonl."""

    def check(self) -> None:
        """Refuse what cannot work, before the folder of the study is made."""
        if len(missing := missing_inputs(self)) > 1:
            raise DataError(f"{len(missing)} inputs are missing:\n  " + "\n  ".join(map(str, missing)))
        if missing:
            raise missing[0]

    def status(self) -> list[dict[str, str]]:
        """What the study would do: every part with its state, then every input that is missing."""
        parts = [
            {"what": part.kind, "name": part.folder, "state": state(self.out / part.folder) or "not started"}
            for part in self.parts
        ]
        return parts + [{"what": "input", "name": str(error), "state": "missing"} for error in missing_inputs(self)]

    def prepare(self, run: Run) -> None:
        """Make the corpora, and whatever the first part needs."""
        make_corpora(self.corpus_rows(), self.corpora)

    def measured(self, trial: Trial) -> Mapping[str, Any]:
        """What a line of trials.jsonl holds beside the folders of a trial."""
        return {}

    def page_runs(self) -> list[Path]:
        """Run folders that the page shows beside the tables."""
        return []

    def make(self, part: Part) -> None:
        """Run a part: a stopped one is continued, one that is finished with these settings is kept."""
        load_reference(self.kinds[part.kind].run)(part.config, self.out / part.folder)

    def check_splits(self, corpus: str, splits: Iterable[str]) -> None:
        """Refuse a corpus of the study that has no study in one of these splits."""
        loaded = load_corpus(folder := self.corpora[corpus])
        for split in splits:
            if not loaded.ids(split):
                raise DataError(
                    f"the corpus '{corpus}' ({folder}) has no study in its {split} split; take a larger one."
                )

    def make_folder(self, folder: str) -> None:
        """Make the part with this folder, in a process that was started for it."""
        self.make(self.part(folder))

    def add(
        self,
        kind: str,
        folder: str,
        given: Any,
        own: Mapping[str, Any],
        *,
        seed: int,
        place: str,
        needs: tuple[str, ...] | None = None,
        key: Any = None,
    ) -> Part:
        """The part with these settings: an earlier one if there is one, else a new one in `folder`.

        Args:
            kind: Row of `kinds`.
            folder: Run folder within the study, for a new part.
            given: The user's settings, as YAML gives them.
            own: Settings of the study, which the user may not give.
            place: What the settings are, for messages ("train of 'dpo'").
            needs: Folders of the parts that must be made before it; those that its settings mention when None.
            key: What makes two parts the same; all settings when None.
        """
        settings = given
        if isinstance(given, Mapping):
            taken = {*flatten(own), *self.kinds[kind].reserved} & set(flatten(given))
            self.problems += [f"{place}: '{name}' is set by the study itself; leave it out." for name in sorted(taken)]
            # A value in the place of a group is kept, and refused below.
            groups = {name: value for name, value in own.items() if isinstance(value, Mapping)}
            kept = {name for name in groups if not isinstance(given.get(name, {}), Mapping)}
            settings = merged(given, {name: value for name, value in own.items() if name not in kept})
        same = dumps([kind, seed, settings if key is None else key])
        if same not in self._parts_by_settings:
            config, problems = parse_group(load_reference(self.kinds[kind].config), settings, place)
            self.problems += problems
            if needs is None:
                needs = tuple(part.folder for part in self.parts if _mentions(settings, self.out / part.folder))
            self._parts_by_settings[same] = Part(kind, seed, folder, config, needs)
            self.parts.append(self._parts_by_settings[same])
        return self._parts_by_settings[same]

    def with_folders(self, settings: Any, place: str) -> Any:
        """Settings with names of corpora replaced by folders; an unknown name becomes a problem."""
        try:
            return with_folders(settings, self.corpora, place) if isinstance(settings, Mapping) else settings
        except ConfigError as error:
            self.problems.append(str(error))
            return settings

    def part(self, folder: str) -> Part:
        """The part with this folder."""
        return next(part for part in self.parts if part.folder == folder)

    def find_trial(self, variant: str, seed: int) -> Trial:
        """The trial of this variant and seed."""
        return next(trial for trial in self.trials if (trial.variant, trial.seed) == (variant, seed))

    def raise_problems(self) -> None:
        """One `ConfigError` with every problem found so far."""
        raise_problems(list(dict.fromkeys(self.problems)))


def _mentions(value: Any, folder: Path) -> bool:
    """Whether settings hold the path of a run folder, or of something in it."""
    if isinstance(value, Mapping):
        return any(_mentions(one, folder) for one in value.values())
    if isinstance(value, (list, tuple)):
        return any(_mentions(one, folder) for one in value)
    return isinstance(value, str) and f"{folder}/" in f"{value}/"


def missing_inputs(recipe: StudyRecipe) -> list[CxrlabError]:
    """Corpora, models and files that a study names and that are not there; what it makes itself is not missing."""
    missing: list[CxrlabError] = [
        DataError(f"corpora, '{name}': the folder {recipe.corpora[name]} does not exist.")
        for name, row in recipe.corpus_rows().items()
        if isinstance(row, str) and not recipe.corpora[name].is_dir()
    ]
    missing += [DataError(f"{path} does not exist.") for path in recipe.needed_files() if not path.exists()]
    named = {name for part in recipe.parts for name in _named_models(plain(part.config))}
    for name in sorted(named):
        if not Path(name.removeprefix("hf:")).is_relative_to(recipe.out):
            from cxrlab.models.model_parts import folder_of

            try:
                folder_of(name)
            except CxrlabError as error:
                missing.append(error)
    return list({str(error): error for error in missing}.values())


def _named_models(value: Any) -> Iterator[str]:
    """Every hf: and builtin: name in plain settings, also inside parts:ENCODER+LANGUAGE_MODEL."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _named_models(one)
    elif isinstance(value, str):
        yield from (one for one in re.split(r"^parts:|\+(?=\w+:)", value) if one.startswith(("hf:", "builtin:")))


def run_recipe(recipe: StudyRecipe) -> Path:
    """Run a planned study; a stopped one is continued, a finished one is shown again. Returns the page."""
    config, out, operational = recipe.config, recipe.out, recipe.operational
    if not finished(out, config, seed=recipe.seed, operational=operational):
        recipe.check()
        with Run.open(out, config, seed=recipe.seed, operational=operational) as run:
            recipe.prepare(run)
            if (at_once := getattr(config, "at_once", 1)) > 1:
                run_in_processes(recipe.make_folder, {part.folder: part.needs for part in recipe.parts}, at_once)
            for part in track(recipe.parts, "parts of the study", quiet=None if recipe.counts_parts else True):
                with error_prefix(part.folder):
                    recipe.make(part)
            done = run.done(TRIALS) if recipe.trials else ()
            for trial in recipe.trials:
                if trial.id not in done:
                    line = {"id": trial.id, "variant": trial.variant, "seed": trial.seed, **trial.parts}
                    run.append(TRIALS, {**line, **recipe.measured(trial)})
            measured = read_jsonl(out / TRIALS) if recipe.trials else ()
            for name, content in recipe.results([line for _, line in measured]).items():
                run.write(name, content)
    return write_page([out, *recipe.page_runs()], out / PAGE, title=recipe.title)


@contextmanager
def error_prefix(folder: str) -> Iterator[None]:
    """Begin the message of an error with the part that it comes from."""
    try:
        yield
    except CxrlabError as error:
        raise type(error)(f"{folder}: {error}") from error


def run_in_processes(work: Callable[[str], None], needs: Mapping[str, Collection[str]], at_once: int) -> None:
    """Run every part in a process of its own, as soon as the parts that it needs are done.

    Where more parts could start than may, the one with most predecessors starts first, so that no long chain is left
    for the end. The first error, and Ctrl-C, kill the other processes: their runs continue from the last checkpoint.

    Args:
        work: Takes a folder; can be pickled.
        needs: Folder of each part → those before it.
        at_once: Most processes; cut to the number of cores.
    """
    at_once = worker_count(at_once, "at_once")
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(at_once, mp_context=multiprocessing.get_context("spawn"), initializer=follow_parent)
    try:
        for _ in track(_completed(pool, work, needs, at_once), f"parts, up to {at_once} at once", len(needs)):
            pass
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _completed(
    pool: ProcessPoolExecutor, work: Callable[[str], None], needs: Mapping[str, Collection[str]], at_once: int
) -> Iterator[str]:
    """The folders in the order in which their runs end."""
    waiting, done, running = dict(needs), set[str](), dict[Future[None], str]()
    while waiting or running:
        ready = [folder for folder, before in waiting.items() if done.issuperset(before)]
        ready.sort(key=lambda folder: -len(needs[folder]))
        for folder in ready[: at_once - len(running)]:
            del waiting[folder]
            running[pool.submit(work, folder)] = folder
        if not running:
            raise ValueError(f"{next(iter(waiting))} needs a part that is not in the plan")
        for ended in wait(running, return_when=FIRST_COMPLETED).done:
            try:
                with error_prefix(running[ended]):
                    ended.result()
            except BrokenProcessPool as error:
                raise RunError(
                    "a process of the study was killed, perhaps because memory ran out; run the command again to "
                    "continue, with a smaller at_once if it happens again."
                ) from error
            done.add(running[ended])
            yield running.pop(ended)
