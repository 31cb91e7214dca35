"""What a page takes from a run folder, read once and checked."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cxrlab.core.errors import DataError
from cxrlab.core.examples import EXAMPLES, Example
from cxrlab.core.files import read_bytes, read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.records import Prediction
from cxrlab.core.runs import CONFIG, ENVIRONMENT, STATUS, state
from cxrlab.core.yaml_file import read_yaml
from cxrlab.render.score_folder import COMPARISON, SCORES, VALIDATION, ScoreFolder, read_scored
from cxrlab.render.shapes import (
    ABLATED,
    ANALYSED,
    AUDITED,
    AUDITED_SEEDS,
    CHECKED,
    CLASSIFIED,
    COMPARED,
    COUNTED,
    EXPLAINED,
    POINTED,
    PREFERENCES,
    PREFERRED,
    RETRIEVED,
    TRIPTYCH,
    VALIDATED,
    check,
)
from cxrlab.render.shapes_extraction import DEFENDED, DETECTED, EXTRACTED, EXTRACTED_SEEDS, MAPPED, PAIR, REHEARSED

PREDICTIONS, SUMMARY, STEPS, SHEET = "predictions.jsonl", "summary.json", "steps.jsonl", "sheet.png"
CHECK, STATISTICS = "check.json", "statistics.json"
ABLATIONS, ANALYSIS = "ablations.json", "analysis.json"
EXPLAIN, POINTING = "explain.json", "pointing.json"
RETRIEVAL, ZERO_SHOT = "retrieval.json", "zero_shot.json"
PREFERENCE, OVER_SEEDS = "preference.json", "preferences.json"
ROBUSTNESS, ROBUSTNESS_SEEDS, TRIPTYCHS = "robustness.json", "robustness_seeds.json", "triptychs.jsonl"
EXTRACTION, SENTENCES, PAIRS = "extraction.json", "map.json", "examples.json"
DETECTION, DEFENCE, EXTRACTION_SEEDS = "detection.json", "defence.json", "extraction_seeds.json"
REHEARSAL = "rehearsal.json"
# A page is looked at, not searched: of a run without chosen examples it shows the first few predictions.
UNCHOSEN = 5
_RESULT = "checkpoint"
# Command → the files with which its run ends; what an unfinished run lacks of them is named on the page.
CONCLUSIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "tour": (SUMMARY,),
        "study": (SUMMARY,),
        "data check": (CHECK, STATISTICS, SUMMARY),
        "data scrub": (SUMMARY,),
        "train encoder": (SUMMARY,),
        "train align": (SUMMARY,),
        "train finetune": (SUMMARY,),
        "generate": (SUMMARY,),
        "score": (SCORES,),
        "compare": (COMPARISON,),
        "explain": (EXPLAIN,),
        "pointing": (POINTING,),
        "metrics validate": (VALIDATION,),
        "retrieve": (RETRIEVAL,),
        "prefer sample": (SUMMARY,),
        "prefer judge": (SUMMARY,),
        "prefer pair": (SUMMARY,),
        "prefer train": (SUMMARY,),
        "harden": ("harden.json", SUMMARY),
        "robustness": (ROBUSTNESS, SUMMARY),
        "extract": (EXTRACTION,),
        "detect": (DETECTION,),
        "defend": (DEFENCE,),
        "serve rehearse": (REHEARSAL,),
    }
)
# Keys of a summary for which a page has a section.
_SUMMARISED = ("predictions", "came_back", "chain")


@dataclass(frozen=True)
class RunFolder:
    """One run as a page sees it.

    Args:
        path: The folder.
        config: The resolved settings.
        environment: Versions, command line, commit, seed.
        status: State and time.
        summary: Conclusions, empty when the run wrote none.
        steps: Name, seconds and budget of each step, where the run has steps.
        examples: Studies to look at.
        predictions: Those of the examples, by id; the first few when there are no examples.
        sheet: Bytes of a contact sheet.
        scored: Scores with the studies behind them, where the run scored.
        comparison: Content of comparison.json, empty when the run compared nothing.
        validation: Content of validation.json, empty when the run measured no metric.
        check: Content of check.json, empty when the run checked no corpus.
        statistics: Content of statistics.json, likewise.
        ablations: Content of ablations.json, empty when the run compared no variants.
        analysis: Content of analysis.json, empty when the run compared no texts.
        explained: Content of explain.json, empty when the run explained no report.
        pointing: Content of pointing.json, empty when the run scored no maps.
        retrieved: Content of retrieval.json, empty when the run looked for no reports.
        zero_shot: Content of zero_shot.json, likewise.
        preference: Content of preference.json, empty when the run aligned no model.
        preferences: Content of preferences.json, empty when the run compared no ways to align.
        robustness: Content of robustness.json, empty when the run attacked no model.
        robustness_seeds: Content of robustness_seeds.json, empty when the run audited no ways to align.
        triptychs: Images before and after an attack, where the run attacked a model.
        extraction: Content of extraction.json, empty when the run copied no model.
        sentences: Content of map.json: sentences of a copied model's answers on a plane.
        pairs: Pictures before and after they were moved, where the run copied a model with moved pictures.
        extraction_seeds: Content of extraction_seeds.json, empty when the run compared no ways to copy.
        detection: Content of detection.json, empty when the run watched no queries.
        defence: Content of defence.json, empty when the run measured no defence.
        rehearsal: Content of rehearsal.json, empty when the run served no model.
    """

    path: Path
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    status: Mapping[str, Any]
    summary: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Mapping[str, Any], ...] = ()
    examples: tuple[Example, ...] = ()
    predictions: Mapping[str, Prediction] = field(default_factory=dict)
    sheet: bytes | None = None
    scored: ScoreFolder | None = None
    comparison: Mapping[str, Any] = field(default_factory=dict)
    validation: Mapping[str, Any] = field(default_factory=dict)
    check: Mapping[str, Any] = field(default_factory=dict)
    statistics: Mapping[str, Any] = field(default_factory=dict)
    ablations: Mapping[str, Any] = field(default_factory=dict)
    analysis: Mapping[str, Any] = field(default_factory=dict)
    explained: Mapping[str, Any] = field(default_factory=dict)
    pointing: Mapping[str, Any] = field(default_factory=dict)
    retrieved: Mapping[str, Any] = field(default_factory=dict)
    zero_shot: Mapping[str, Any] = field(default_factory=dict)
    preference: Mapping[str, Any] = field(default_factory=dict)
    preferences: Mapping[str, Any] = field(default_factory=dict)
    robustness: Mapping[str, Any] = field(default_factory=dict)
    robustness_seeds: Mapping[str, Any] = field(default_factory=dict)
    triptychs: tuple[Mapping[str, Any], ...] = ()
    extraction: Mapping[str, Any] = field(default_factory=dict)
    sentences: Mapping[str, Any] = field(default_factory=dict)
    pairs: tuple[Mapping[str, Any], ...] = ()
    extraction_seeds: Mapping[str, Any] = field(default_factory=dict)
    detection: Mapping[str, Any] = field(default_factory=dict)
    defence: Mapping[str, Any] = field(default_factory=dict)
    rehearsal: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The model of a run that has one, else the name of its folder; see `shortened`."""
        return shortened(str(self.summary.get("model") or self.config.get("model") or self.path.resolve().name))

    @property
    def has_section(self) -> bool:
        """Whether a section of the page shows what the run found."""
        described = ("path", "config", "environment", "status", "summary")
        found = (getattr(self, one.name) for one in fields(self) if one.name not in described)
        return any(found) or any(key in self.summary for key in _SUMMARISED)

    @property
    def command(self) -> str:
        """The command line that made the run, as it can be typed again; empty when it is not known."""
        words = [str(word) for word in self.environment.get("command") or ()]
        if words and Path(words[0]).name in ("cxrlab", "__main__.py"):
            words[0] = "cxrlab"
        return shlex.join(words)

    @property
    def lacks(self) -> str | None:
        """What keeps the run from being shown in full; None for a finished run with results."""
        measured = self.config.get("measure") if "pairs" in self.config else None
        # 'prefer train' measures its model after the run of the training has ended.
        unmeasured = isinstance(measured, Mapping) and bool(measured.get("n")) and not self.preference
        state, reason = self.status.get("state"), self.status.get("reason")
        if state == "finished" and not unmeasured:
            return None if self.has_section or self.summary else "finished, but it holds nothing that a page shows"
        ends_with = (*self._ends_with(), *((PREFERENCE,) if unmeasured else ()))
        absent = ", ".join(name for name in ends_with if not (self.path / name).is_file())
        how = {"finished": "trained, but not measured", "running": "still running, or killed"}.get(
            str(state), str(state)
        )
        return f"{how}{f' ({reason})' if reason else ''}{f'; {absent} missing' if absent else ''}"

    def _ends_with(self) -> tuple[str, ...]:
        """The files with which the run ends; none for a part of another command's run, whose kind is not recorded."""
        words = [str(word) for word in self.environment.get("command") or ()]
        out = next((after for word, after in itertools.pairwise(words) if word == "--out"), None)
        out = next((word.removeprefix("--out=") for word in words if word.startswith("--out=")), out)
        if out is None or Path(out).name != self.path.resolve().name:
            return ()
        name = next((name for name in (" ".join(words[1:3]), words[1]) if name in CONCLUSIONS), None)
        return CONCLUSIONS[name] if name else ()

    def file(self, name: str, named_in: str = EXAMPLES) -> bytes:
        """Bytes of a file of this run; a name that leads out of the folder is refused.

        Args:
            name: The file, from the run folder.
            named_in: The file that names it, for the error.
        """
        target = (self.path / name).resolve()
        if not target.is_relative_to(self.path.resolve()):
            raise DataError(f"{self.path / named_in} names the file '{name}', which is outside the run folder.")
        return read_bytes(target)


def shortened(full: str) -> str:
    """The name of a model for people: of a long path only the end is shown.

    Every training run calls its result `checkpoint`, so that the name before it belongs to the end.
    """
    kind, colon, argument = full.partition(":")
    # One slash is an owner and a name; an address starts with two, and is wanted whole.
    deep = colon and argument.count("/") > 1 and not argument.startswith("//")
    parts = argument.rstrip("/").split("/")
    end = "/".join(parts[-2:] if parts[-1] == _RESULT else parts[-1:])
    return f"{kind}:…/{end}" if deep else full


def read_run(path: Path, others: frozenset[str] = frozenset()) -> RunFolder:
    """Read a run folder.

    Args:
        path: The folder; one without config and status is not a run and a `DataError`.
        others: Ids of examples of other runs on the same page, whose predictions are wanted here too.
    """
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise DataError(f"{path} {what}; name the folder of a run.")
    for needed in (CONFIG, STATUS):
        if not (path / needed).is_file():
            raise DataError(
                f"{path} is not a run folder: it has no {needed}; "
                "name one that a command wrote, such as 'generate', 'score', 'retrieve', 'explain' or 'study'."
            )
    examples = tuple(_examples(path))
    wanted = others | {example.id for example in examples}
    return RunFolder(
        path=path,
        config=read_yaml(path / CONFIG)[0],
        environment=_object(path / ENVIRONMENT),
        status=_object(path / STATUS),
        summary=_object(path / SUMMARY),
        steps=_lines(path / STEPS),
        examples=examples,
        predictions=_predictions(path / PREDICTIONS, wanted),
        sheet=read_bytes(path / SHEET) if (path / SHEET).is_file() else None,
        scored=read_scored(path),
        comparison=_object(path / COMPARISON, COMPARED),
        validation=_object(path / VALIDATION, VALIDATED),
        check=_object(path / CHECK, CHECKED),
        statistics=_object(path / STATISTICS, COUNTED),
        ablations=_object(path / ABLATIONS, ABLATED),
        analysis=_object(path / ANALYSIS, ANALYSED),
        explained=_object(path / EXPLAIN, EXPLAINED),
        pointing=_object(path / POINTING, POINTED),
        retrieved=_object(path / RETRIEVAL, RETRIEVED),
        zero_shot=_object(path / ZERO_SHOT, CLASSIFIED),
        preference=_object(path / PREFERENCE, PREFERRED),
        preferences=_object(path / OVER_SEEDS, PREFERENCES),
        robustness=_object(path / ROBUSTNESS, AUDITED),
        robustness_seeds=_object(path / ROBUSTNESS_SEEDS, AUDITED_SEEDS),
        triptychs=_lines(path / TRIPTYCHS, TRIPTYCH),
        extraction=_object(path / EXTRACTION, EXTRACTED),
        sentences=_object(path / SENTENCES, MAPPED),
        pairs=_list(path / PAIRS, PAIR),
        extraction_seeds=_object(path / EXTRACTION_SEEDS, EXTRACTED_SEEDS),
        detection=_object(path / DETECTION, DETECTED),
        defence=_object(path / DEFENCE, DEFENDED),
        rehearsal=_object(path / REHEARSAL, REHEARSED),
    )


def read_runs(paths: list[Path]) -> list[RunFolder]:
    """Several runs of one page: each gives its predictions for the examples of all."""
    ids = frozenset(example.id for path in paths for example in _examples(path))
    return [read_run(path, ids) for path in paths]


def _records(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a file, none where it is absent; of an unfinished run the last line may be cut."""
    try:
        yield from read_jsonl(file) if file.is_file() else ()
    except DataError:
        if state(file.parent) == "finished" or read_bytes(file).endswith(b"\n"):
            raise


def _examples(path: Path) -> list[Example]:
    file = path / EXAMPLES
    found = []
    for number, record in _records(file):
        try:
            found.append(Example.from_json(record))
        except DataError as error:
            raise DataError(f"{file}:{number}: {error}") from None
    return found


def _predictions(file: Path, wanted: frozenset[str]) -> dict[str, Prediction]:
    found: dict[str, Prediction] = {}
    for number, record in _records(file):
        if (record.get("id") in wanted) if wanted else len(found) < UNCHOSEN:
            try:
                prediction = Prediction.from_json(record)
            except DataError as error:
                raise DataError(f"{file}:{number}: {error}") from None
            found[prediction.id] = prediction
    return found


def _lines(file: Path, shape: Mapping[str, Any] = MappingProxyType({})) -> tuple[Mapping[str, Any], ...]:
    found = []
    for number, record in _records(file):
        check(record, shape, f"{file}:{number}")
        found.append(record)
    return tuple(found)


def _object(file: Path, shape: Mapping[str, Any] = MappingProxyType({})) -> Mapping[str, Any]:
    value = read_json(file) if file.is_file() else {}
    if not isinstance(value, dict):
        raise DataError(f"{file} must hold a JSON object, not a {type(value).__name__}.")
    check(value, shape, str(file))
    return value


def _list(file: Path, shape: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    value = read_json(file) if file.is_file() else []
    check(value, [shape], str(file))
    return tuple(value)
