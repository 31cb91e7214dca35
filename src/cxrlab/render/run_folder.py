"""Reads run folders for a page: every result file once, checked against its shape."""

from __future__ import annotations

import argparse
import functools
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from cxrlab.core.config import read_yaml
from cxrlab.core.errors import DataError, short_repr
from cxrlab.core.files import read_bytes, read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.record_fields import Record
from cxrlab.core.records import EXAMPLES, Example, Prediction, ReportError
from cxrlab.core.runs import CONFIG, ENVIRONMENT, STATUS, state
from cxrlab.core.vocabulary import ErrorKind

PREDICTIONS, STEPS, SHEET = "predictions.jsonl", "steps.jsonl", "sheet.png"
T = TypeVar("T")
R = TypeVar("R", bound=Record)
UNCHOSEN = 5  # predictions of a run without chosen examples
SHOWN_STUDIES = 6  # scored studies, from the best to the worst
_RESULT = "checkpoint"
# Keys of a summary for which a page has a section.
_SUMMARISED = ("predictions", "round_trip", "chain")


@dataclass(frozen=True)
class ScoredStudy:
    """A scored study with both texts and the errors of the second."""

    id: str
    reference: str
    candidate: str
    errors: tuple[ReportError, ...]


@dataclass(frozen=True)
class ScoredStudies:
    """The studies behind the scores of a run."""

    # (kind, significant) → number of errors over all studies
    kinds: Mapping[tuple[ErrorKind, bool], int] = field(default_factory=Counter)
    studies: tuple[ScoredStudy, ...] = ()  # A few, from the fewest significant errors to the most


@dataclass(frozen=True)
class RunFolder:
    """One run as a page sees it."""

    path: Path  # The folder
    config: Mapping[str, Any]  # The resolved settings
    environment: Mapping[str, Any]  # Versions, command line, commit, seed
    status: Mapping[str, Any]  # State and time
    summary: Mapping[str, Any] = field(default_factory=dict)  # Content of summary.json, empty without one
    steps: tuple[Mapping[str, Any], ...] = ()  # Name, seconds and budget of each step, where the run has steps
    examples: tuple[Example, ...] = ()  # Studies to look at
    # Those of the examples, by id; the first few when there are no examples
    predictions: Mapping[str, Prediction] = field(default_factory=dict)
    sheet: bytes | None = None  # Bytes of a contact sheet
    scored: ScoredStudies = field(default_factory=ScoredStudies)  # The studies behind the scores
    # Content of each file of result_shapes.yaml that the run has
    results: Mapping[str, Any] = field(default_factory=dict)

    def result(self, file: str) -> Mapping[str, Any]:
        """Content of a result file; empty when the run has none."""
        found: Mapping[str, Any] = self._result(file, {})
        return found

    def records(self, file: str) -> tuple[Mapping[str, Any], ...]:
        """Records of a result file that is a list; none when the run has no such file."""
        found: tuple[Mapping[str, Any], ...] = self._result(file, ())
        return found

    def _result(self, file: str, absent: Any) -> Any:
        if file not in result_shapes():
            raise KeyError(f"{file} is never read: add its shape to result_shapes.yaml")
        return self.results.get(file, absent)

    @property
    def name(self) -> str:
        """The model of a run that has one, else the name of its folder; see `short_name`."""
        return short_name(str(self.summary.get("model") or self.config.get("model") or self.path.resolve().name))

    @property
    def has_section(self) -> bool:
        """Whether a section of the page shows what the run found."""
        found = (self.steps, self.examples, self.predictions, self.sheet, SCORES in self.results)
        return any(found) or any(self.results.values()) or any(key in self.summary for key in _SUMMARISED)

    @property
    def command(self) -> str:
        """The command line that made the run, ready to be pasted; empty when it is not known."""
        words = [str(word) for word in self.environment.get("command") or ()]
        if words and Path(words[0]).name in ("cxrlab", "__main__.py"):
            words[0] = "cxrlab"
        return shlex.join(words)

    @property
    def why_incomplete(self) -> str | None:
        """Why the run cannot be shown in full; None for a finished run with results."""
        state, reason = str(self.status.get("state")), self.status.get("reason")
        if state == "finished" and not self._awaits_measurement:
            return None if self.has_section or self.summary else "finished, but it holds nothing that a page shows"
        why = {"finished": "trained, but not measured", "running": "still running, or killed"}.get(state, state)
        missing = [name for name in self._final_files if not (self.path / name).is_file()]
        return why + (f" ({reason})" if reason else "") + (f"; {', '.join(missing)} missing" if missing else "")

    @property
    def _awaits_measurement(self) -> bool:
        """Whether this is a preference training whose model is yet to be measured, after the training has finished."""
        measured = self.config.get("measure") if "pairs" in self.config else None
        return isinstance(measured, Mapping) and bool(measured.get("n")) and not self.result(PREFERENCE)

    @property
    def _final_files(self) -> tuple[str, ...]:
        """The files with which the run ends; unknown where another command made the run inside its own folder."""
        words = [str(word) for word in self.environment.get("command") or ()]
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--out", nargs="?")
        out = parser.parse_known_args(words)[0].out
        files: tuple[str, ...] = ()
        if out is not None and Path(out).name == self.path.resolve().name:
            files = CONCLUSIONS.get(" ".join(words[1:3]), CONCLUSIONS.get(words[1], ()))
        return (*files, PREFERENCE) if self._awaits_measurement else files

    def file(self, name: str, named_in: str = EXAMPLES) -> bytes:
        """Bytes of a file of this run, which `named_in` names; a name that leads out of the folder is refused."""
        target = (self.path / name).resolve()
        if not target.is_relative_to(self.path.resolve()):
            raise DataError(f"{self.path / named_in} names the file '{name}', which is outside the run folder.")
        return read_bytes(target)


def per_run(
    file: str,
) -> Callable[[Callable[[RunFolder, Mapping[str, Any]], T | None]], Callable[[Sequence[RunFolder]], tuple[T, ...]]]:
    """Decorator: a section with one entry per run that has `file`, from a function of the run and the file's content."""

    def decorate(entry: Callable[[RunFolder, Mapping[str, Any]], T | None]) -> Callable[..., tuple[T, ...]]:
        @functools.wraps(entry)
        def section(runs: Sequence[RunFolder]) -> tuple[T, ...]:
            entries = (entry(run, run.result(file)) for run in runs if run.result(file))
            return tuple(one for one in entries if one is not None)

        return section

    return decorate


def short_name(model: str) -> str:
    """The name of a model for people: of a long path only the last part, with the one before if that is `checkpoint`."""
    kind, colon, argument = model.partition(":")
    # One slash is an owner and a name; an address starts with two and is shown whole.
    deep = colon and argument.count("/") > 1 and not argument.startswith("//")
    parts = argument.rstrip("/").split("/")
    end = "/".join(parts[-2:] if parts[-1] == _RESULT else parts[-1:])
    return f"{kind}:…/{end}" if deep else model


def read_runs(paths: list[Path]) -> list[RunFolder]:
    """Several runs of one page: each gives its predictions for the examples of all."""
    ids = frozenset(example.id for path in paths for example in _examples(path))
    return [read_run(path, ids) for path in paths]


def read_run(path: Path, others: frozenset[str] = frozenset()) -> RunFolder:
    """Read a run folder; one without config and status raises a `DataError`.

    Args:
        others: Ids of examples of other runs on the same page, whose predictions are read here too.
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
    ids, file = others | {example.id for example in examples}, path / PREDICTIONS
    predictions: dict[str, Prediction] = {}
    for number, record in _records(file):
        if (record.get("id") in ids) if ids else len(predictions) < UNCHOSEN:
            predictions[str(record.get("id"))] = _parsed(Prediction, record, f"{file}:{number}")
    results = {file: _result(path / file, shape) for file, shape in result_shapes().items() if (path / file).is_file()}
    return RunFolder(
        path=path,
        config=read_yaml(path / CONFIG)[0],
        environment=_object(path / ENVIRONMENT),
        status=_object(path / STATUS),
        summary=_object(path / SUMMARY),
        steps=_lines(path / STEPS),
        examples=examples,
        predictions=predictions,
        sheet=read_bytes(path / SHEET) if (path / SHEET).is_file() else None,
        scored=read_studies(path) if SCORES in results else ScoredStudies(),
        results=results,
    )


def _result(file: Path, shape: Any) -> Any:
    """The content of a result file, checked."""
    if file.suffix == ".jsonl":
        return _lines(file, shape)
    if isinstance(shape, list):
        value = read_json(file)
        check(value, shape, str(file))
        return tuple(value)
    found = _object(file, shape)
    if file.name == SCORES:
        if not isinstance(found.get("metrics"), Mapping):
            raise DataError(f"{file} holds no 'metrics'; score again.")
        if bare := [name for name, score in found["metrics"].items() if "value" not in score]:
            raise DataError(f"{file}: '{bare[0]}' has no 'value'; score again.")
    return found


def _object(file: Path, shape: Any = None) -> Mapping[str, Any]:
    value = read_json(file) if file.is_file() else {}
    if not isinstance(value, dict):
        raise DataError(f"{file} must hold a JSON object, not a {type(value).__name__}.")
    check(value, shape or {}, str(file))
    return value


def _lines(file: Path, shape: Any = None) -> tuple[Mapping[str, Any], ...]:
    found = []
    for number, record in _records(file):
        check(record, shape or {}, f"{file}:{number}")
        found.append(record)
    return tuple(found)


def _records(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a file, none where it is absent; of an unfinished run the last line may be cut."""
    try:
        yield from read_jsonl(file) if file.is_file() else ()
    except DataError:
        if state(file.parent) == "finished" or read_bytes(file).endswith(b"\n"):
            raise


def _examples(path: Path) -> list[Example]:
    return [_parsed(Example, record, f"{path / EXAMPLES}:{number}") for number, record in _records(path / EXAMPLES)]


def _parsed(cls: type[R], source: Any, place: str) -> R:
    """A record from its JSON form; an error names the place."""
    try:
        return cls.from_json(source)
    except DataError as error:
        raise DataError(f"{place}: {error}") from None


def read_studies(path: Path) -> ScoredStudies:
    """The studies behind the scores of a run; none when the run wrote none down."""
    file = path / PER_STUDY
    kinds: Counter[tuple[ErrorKind, bool]] = Counter()
    ranks: list[tuple[int, int, str]] = []  # a test set may be large: its texts are read in a second pass
    for number, record in read_jsonl(file) if file.is_file() else ():
        errors = _errors(record, f"{file}:{number}")
        kinds.update((error.kind, error.significant) for error in errors)
        if isinstance(record.get("reference"), str):
            ranks.append((sum(error.significant for error in errors), len(errors), str(record.get("id"))))
    chosen = evenly_spaced([key for _, _, key in sorted(ranks)], SHOWN_STUDIES)
    found: dict[str, ScoredStudy] = {}
    for number, record in read_jsonl(file) if chosen else ():
        if (key := str(record.get("id"))) in chosen:
            candidate = record.get("candidate")
            words = candidate if isinstance(candidate, str) else ""
            found[key] = ScoredStudy(key, str(record["reference"]), words, _errors(record, f"{file}:{number}"))
    return ScoredStudies(kinds, tuple(found[key] for key in chosen))


def evenly_spaced(keys: Sequence[str], count: int) -> list[str]:
    """`count` of these at even distances, first and last among them; all when there are fewer."""
    if len(keys) <= count:
        return list(keys)
    return [keys[round(place * (len(keys) - 1) / (count - 1))] for place in range(count)]


def _errors(record: Mapping[str, Any], place: str) -> tuple[ReportError, ...]:
    errors = record.get("errors") or ()
    if not isinstance(errors, (list, tuple)):
        raise DataError(f"{place}: 'errors' is {short_repr(errors)}; it must be a list.")
    return tuple(_parsed(ReportError, error, place) for error in errors)


SUMMARY, PER_STUDY, HISTORY = "summary.json", "per_study.jsonl", "history.jsonl"
CERTIFICATE = "certificate.json"
SCORES, COMPARISON, VALIDATION = "scores.json", "comparison.json", "validation.json"
CHECK, STATISTICS = "check.json", "statistics.json"
ABLATIONS, ANALYSIS = "ablations.json", "analysis.json"
EXPLAIN, POINTING = "explain.json", "pointing.json"
RETRIEVAL, ZERO_SHOT = "retrieval.json", "zero_shot.json"
PREFERENCE, PREFERENCES = "preference.json", "preferences.json"
ROBUSTNESS, ROBUSTNESS_SEEDS, TRIPTYCHS = "robustness.json", "robustness_seeds.json", "triptychs.jsonl"
EXTRACTION, EXTRACTION_SEEDS = "extraction.json", "extraction_seeds.json"
SENTENCE_MAP, EXAMPLE_PAIRS = "map.json", "examples.json"
DETECTION, DEFENCE, REHEARSAL = "detection.json", "defence.json", "rehearsal.json"

# Command → the files with which its run ends; a page names those that an unfinished run lacks.
CONCLUSIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("tour", "study", "data scrub", "generate"), (SUMMARY,)),
        **dict.fromkeys(("train encoder", "train align", "train finetune"), (SUMMARY,)),
        **dict.fromkeys(("prefer sample", "prefer judge", "prefer pair", "prefer train"), (SUMMARY,)),
        "data check": (CHECK, STATISTICS, SUMMARY),
        "score": (SCORES,),
        "certify": (CERTIFICATE,),
        "compare": (COMPARISON,),
        "explain": (EXPLAIN,),
        "pointing": (POINTING,),
        "metrics validate": (VALIDATION,),
        "retrieve": (RETRIEVAL,),
        "classify": ("classification.json",),
        "harden": ("harden.json", SUMMARY),
        "robustness": (ROBUSTNESS, SUMMARY),
        "extract": (EXTRACTION,),
        "detect": (DETECTION,),
        "defend": (DEFENCE,),
        "serve rehearse": (REHEARSAL,),
    }
)

_ANY, _NUMBER = "*", "number"


@functools.cache
def result_shapes() -> Mapping[str, Any]:
    """File → shape, from result_shapes.yaml. Every such file that a run has is read and checked."""
    shapes, _ = read_yaml(Path(__file__).with_name("result_shapes.yaml"))
    return {file: _expanded(shape) for file, shape in shapes.items()}


def _expanded(shape: Any) -> Any:
    """A shape with one key for each name: `low, high: number` describes two."""
    if isinstance(shape, Mapping):
        return {name: _expanded(inner) for names, inner in shape.items() for name in names.split(", ")}
    return [_expanded(shape[0])] if isinstance(shape, list) else shape


def check(value: Any, shape: Any, file: str, place: str = "") -> None:
    """Raise a `DataError` that names file and key (`place`) for content of another shape; see result_shapes.yaml."""
    if isinstance(shape, Mapping):
        if not isinstance(value, Mapping):
            raise _wrong(value, "an object", file, place)
        for key, item in value.items():
            inner = shape.get(key, shape.get(_ANY))
            if inner is not None and (item is not None or key not in shape):
                check(item, inner, file, f"{place}.{key}" if place else str(key))
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise _wrong(value, "a list", file, place)
        for number, item in enumerate(value):
            check(item, shape[0], file, f"{place}[{number}]")
    elif shape == _NUMBER:
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise _wrong(value, "a number or null", file, place)
    elif not isinstance(value, str):
        raise _wrong(value, "text", file, place)


def _wrong(value: Any, expected: str, file: str, place: str) -> DataError:
    what = f"'{place}' is {short_repr(value)}" if place else f"it holds {short_repr(value)}"
    return DataError(f"{file}: {what}; it must be {expected}. Repeat the run.")
