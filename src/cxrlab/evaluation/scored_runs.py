"""Write the counts behind a score and read them again, so that runs are compared without scoring again.

    tallies.json   ids, patients, a digest of the references; for each metric its card, value and function
    tallies.npz    the rows of counts, one array for all metrics that share them; no pickled objects

The function from sums to a value is stored by name. Only functions of `cxrlab.metrics` are loaded, and the value
that one computes must equal the stored value: counts that mean something else today raise an error.
"""

from __future__ import annotations

import functools
import hashlib
import io
import math
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError, DataError, UnknownName, did_you_mean
from cxrlab.core.files import read_bytes, read_json
from cxrlab.core.headline_metrics import headline_metrics
from cxrlab.core.json_values import dumps
from cxrlab.core.registry import load_reference
from cxrlab.core.runs import Run, state
from cxrlab.data.bounded_reading import MAX_UNPACKED_BYTES, read_member
from cxrlab.metrics.base import Matrix, Memory, Metric, Tally, memory_key, metric_names
from cxrlab.metrics.report_pairs import Batch

INDEX, ARRAYS = "tallies.json", "tallies.npz"
_FUNCTION = re.compile(r"cxrlab\.metrics(\.\w+)+:\w+")


@dataclass(frozen=True, eq=False)
class ScoredRun:
    """The tallies of a scored run, by metric name; `references` is the digest of `hash_references`."""

    folder: Path
    ids: tuple[str, ...]
    patients: tuple[str, ...]
    references: str
    tallies: Mapping[str, Tally]
    signatures: Mapping[str, str]


def hash_references(batch: Batch) -> str:
    """SHA-256 of ids, reference texts and exact findings, whatever their order."""
    digest = hashlib.sha256()
    for pair in sorted(batch.pairs, key=lambda pair: pair.id):
        digest.update(dumps([pair.id, pair.reference, pair.findings]).encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def write_tallies(run: Run, batch: Batch, tallies: Sequence[Tally]) -> None:
    """Write the counts of every metric into an open run."""
    if len({tally.metric.name for tally in tallies}) < len(tallies):
        raise ValueError("two tallies have the same metric name")
    arrays: dict[str, NDArray[Any]] = {}
    metrics = {}
    for tally in tallies:
        card = tally.metric
        value_of = _describe_function(tally.value_of, card.name)
        metrics[card.name] = {
            "signature": card.signature,
            "direction": card.direction,
            "range": [end if math.isfinite(end) else None for end in card.range],
            "identity": card.identity,
            "undefined": card.undefined,
            "conventions": dict(card.conventions),
            "about": card.about,
            "quirk": card.quirk,
            "by_pair": card.by_pair,
            "value": tally.value,
            "value_of": value_of,
            "rows": _add_array(arrays, tally.rows),
            "defined": _add_array(arrays, tally.defined),
        }
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **{f"array{k}": a for k, a in enumerate(arrays.values())})
    run.write(ARRAYS, stream.getvalue())
    index = {
        "ids": [pair.id for pair in batch.pairs],
        "patients": [pair.patient or pair.id for pair in batch.pairs],
        "references": hash_references(batch),
        "metrics": metrics,
    }
    run.write(INDEX, index)


def _add_array(arrays: dict[str, NDArray[Any]], array: NDArray[Any]) -> str:
    """Store an array under its digest, whole numbers in the smallest type that holds them; the name in the file."""
    if array.dtype != np.bool_ and array.size and array.min() >= 0:
        kind = next((kind for kind in (np.uint8, np.uint16, np.uint32) if array.max() <= np.iinfo(kind).max), None)
        if kind is not None and np.array_equal(array.astype(kind), array):
            array = array.astype(kind)
    digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes()).hexdigest()
    arrays.setdefault(digest, array)
    return f"array{list(arrays).index(digest)}"


def read_tallies(folder: Path) -> ScoredRun:
    """The counts of a scored run; a folder without them, or damaged ones, is a `DataError`."""
    folder = Path(folder)
    place = folder / INDEX
    if not place.is_file():
        raise DataError(f"{folder} holds no {INDEX}; give the folder of a finished run of 'cxrlab score'.")
    if state(folder) in ("running", "interrupted"):
        raise DataError(f"{folder} is a run that has not finished; run its 'cxrlab score' again to finish it.")
    index = read_json(place)
    try:
        ids, patients = tuple(map(str, index["ids"])), tuple(map(str, index["patients"]))
        described = dict(index["metrics"])
        arrays = _load_arrays(folder / ARRAYS)
        tallies = {name: _load_tally(name, entry, arrays, len(ids)) for name, entry in described.items()}
        signatures = {name: str(entry["signature"]) for name, entry in described.items()}
        references = str(index["references"])
    except (LookupError, TypeError, ValueError, AttributeError, ImportError) as error:
        raise DataError(f"{place} is damaged ({type(error).__name__}: {error}); score the run again.") from error
    if len(patients) != len(ids) or len(set(ids)) != len(ids):
        raise DataError(f"{place} is damaged (ids repeat, or do not fit the patients); score the run again.")
    return ScoredRun(folder, ids, patients, references, tallies, signatures)


def tallies_of_sheet(batch: Batch, tallies: Sequence[Tally], name: str) -> ScoredRun:
    """The same of scores in memory, under a name in the place of their folder."""
    return ScoredRun(
        Path(name),
        tuple(pair.id for pair in batch.pairs),
        tuple(pair.patient or pair.id for pair in batch.pairs),
        hash_references(batch),
        {tally.metric.name: tally for tally in tallies},
        {tally.metric.name: tally.metric.signature for tally in tallies},
    )


def _describe_function(function: Any, metric: str) -> dict[str, Any]:
    """`module:function` and keyword arguments of an aggregation; anything that has no such name is refused."""
    arguments: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        if function.args:
            raise ValueError(f"the aggregation of {metric} must bind its arguments by keyword")
        arguments = {**function.keywords, **arguments}
        function = function.func
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    if not _FUNCTION.fullmatch(name):
        raise ValueError(f"the aggregation of {metric} ({name}) is not a function at the top of a module of metrics")
    values = {key: _describe_function(value, metric) if callable(value) else value for key, value in arguments.items()}
    return {"function": name, "arguments": values}


def _load_function(described: Mapping[str, Any]) -> Callable[..., Any]:
    """The function that `_describe_function` described."""
    name = described["function"]
    if not _FUNCTION.fullmatch(name):
        raise ValueError(f"'{name}' is not a function of a metric")
    arguments = {key: _load_argument(value) for key, value in described["arguments"].items()}
    function: Callable[..., Any] = load_reference(name)
    if f"{function.__module__}:{function.__qualname__}" != name:  # something that the module only imports
        raise ValueError(f"'{name}' is not a function of that module")
    return functools.partial(function, **arguments) if arguments else function


def _load_argument(value: Any) -> Any:
    """A function, or a plain value with tuples for lists."""
    if isinstance(value, dict):
        return _load_function(value)
    return tuple(map(_load_argument, value)) if isinstance(value, list) else value


def _load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays, counts as floats: converted once, so that metrics still share them.

    An array whose header claims more than the file holds is refused before memory is allocated.
    """
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path))) as stored:
            stored.filename = str(path)  # for messages
            members = {name: read_member(stored, name, MAX_UNPACKED_BYTES) for name in stored.namelist()}
        for name, data in members.items():
            stream = io.BytesIO(data)
            old = np.lib.format.read_magic(stream) == (1, 0)
            read_header = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
            shape, _, kind = read_header(stream)
            if math.prod(shape) * kind.itemsize != len(data) - stream.tell():
                raise ValueError(f"an array of shape {shape} does not fit {len(data)} bytes")
            array = np.asarray(np.load(io.BytesIO(data), allow_pickle=False))
            if array.dtype.kind not in "biuf":
                raise ValueError(f"{name.removesuffix('.npy')} holds no numbers")
            arrays[name.removesuffix(".npy")] = array if array.dtype == np.bool_ else array.astype(np.float64)
    except (ValueError, EOFError, OSError, NotImplementedError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not a readable file of counts ({error}); score the run again.") from None
    return arrays


def _load_tally(name: str, entry: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], count: int) -> Tally:
    low, high = entry["range"]
    if entry["direction"] not in ("higher", "lower"):
        raise ValueError(f"{name} has the direction {entry['direction']!r}")
    card = Metric(
        name=name,
        direction=entry["direction"],
        range=(-math.inf if low is None else low, math.inf if high is None else high),
        identity=entry["identity"],
        undefined=entry["undefined"],
        conventions=entry["conventions"],
        about=entry["about"],
        quirk=entry["quirk"],
        by_pair=entry["by_pair"],
    )
    rows, defined = arrays[entry["rows"]], arrays[entry["defined"]]
    if rows.dtype != np.float64 or defined.dtype != np.bool_:
        raise ValueError(f"{name} has arrays of types {rows.dtype} and {defined.dtype}")
    if rows.ndim != 2 or len(rows) != count or defined.shape != (count,):
        raise ValueError(f"{name} has arrays of shapes {rows.shape} and {defined.shape} for {count} ids")
    tally = Tally(card, rows, defined, _load_function(entry["value_of"]))
    stored = math.nan if entry["value"] is None else float(entry["value"])
    if not np.isclose(tally.value, stored, rtol=1e-9, atol=1e-12, equal_nan=True):
        raise ValueError(f"{name} is {stored} in the file and {tally.value} by the program now")
    return tally


def align_runs(runs: Sequence[ScoredRun]) -> list[ScoredRun]:
    """The runs with their rows in the order of the first; other studies, references or patients are refused."""
    return [runs[0], *(_align(run, runs[0]) for run in runs[1:])]


def _align(run: ScoredRun, first: ScoredRun) -> ScoredRun:
    places = {key: place for place, key in enumerate(run.ids)}
    here, known = [key for key in first.ids if key not in places], set(first.ids)
    there = [key for key in run.ids if key not in known]
    if here or there:
        raise DataError(
            f"{first.folder} and {run.folder} were not scored on the same studies: {_few(here)} only in the first, "
            f"{_few(there)} only in the second; score both on the same references and predictions."
        )
    if run.references != first.references:
        raise DataError(
            f"{first.folder} and {run.folder} were scored against different reference texts or findings; "
            "score both against the same references and section."
        )
    rows = np.array([places[key] for key in first.ids], dtype=np.intp)
    patients = tuple(run.patients[row] for row in rows)
    if patients != first.patients:
        raise DataError(
            f"{first.folder} and {run.folder} do not agree on which patient a study belongs to; "
            "score both with the same references file."
        )
    if np.array_equal(rows, np.arange(len(rows))):
        return run
    moved: dict[Memory, Matrix] = {}
    tallies = {}
    for name, tally in run.tallies.items():
        memory = memory_key(tally.rows)
        if memory not in moved:
            moved[memory] = tally.rows[rows]
        tallies[name] = replace(tally, rows=moved[memory], defined=tally.defined[rows])
    return replace(run, ids=first.ids, patients=patients, tallies=tallies)


def _few(keys: Sequence[str]) -> str:
    if not keys:
        return "none"
    return f"{len(keys)} ({', '.join(keys[:3])}{', …' if len(keys) > 3 else ''})"


def select_comparable(
    runs: Sequence[ScoredRun], metrics: Sequence[str] = (), needed: Sequence[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Metrics that every run computed in the same way, and why the others were not compared.

    Args:
        runs: The baseline first.
        metrics: Names, patterns (`bleu*`) and groups (`coco`, `all`); the headline metrics when empty.
        needed: Names that are compared in any case. One that finds nothing to compare is a `ConfigError`.
    """
    names = list(dict.fromkeys(name for run in runs for name in run.tallies))
    refused = {name: why for name in names if (why := _objection(name, runs))}
    chosen = {*needed, *(() if metrics else headline_metrics(names))}
    for wanted in [*metrics, *needed]:
        found = [wanted] if wanted in names else []
        if not found and wanted in metrics:
            try:
                group: Sequence[str] = names if wanted == "all" else metric_names([wanted])
            except UnknownName:
                group = ()
            found = [name for name in names if fnmatchcase(name, wanted) or name in group]
        if not found:
            raise ConfigError(
                f"no run holds a metric '{wanted}'.{did_you_mean(wanted, names)} They hold: {_few(names)}."
            )
        if all(name in refused for name in found):
            raise ConfigError(f"'{wanted}' cannot be compared: {refused[found[0]]}.")
        chosen.update(found)
    kept = [name for name in names if name in chosen and name not in refused]
    if not kept:
        example = next((f" (for example {name}: {why})" for name, why in refused.items()), "")
        raise DataError(f"the runs share no metric that was computed in the same way{example}; score them alike.")
    return kept, {name: why for name, why in refused.items() if name in chosen}


def _objection(name: str, runs: Sequence[ScoredRun]) -> str:
    """Why a metric cannot be compared; empty when it can."""
    for run in runs:
        if name not in run.tallies:
            return f"not in {run.folder}"
    first = runs[0].signatures[name]
    for run in runs[1:]:
        if run.tallies[name].metric.direction != runs[0].tallies[name].metric.direction:
            return f"higher is better in one of {runs[0].folder} and {run.folder} and lower in the other"
        other = run.signatures[name]
        if other != first:
            mine, yours = first.split("|"), other.split("|")
            differ = [part for part in mine if part not in yours], [part for part in yours if part not in mine]
            return f"computed with {' '.join(differ[0]) or 'no setting'} and with {' '.join(differ[1]) or 'no setting'}"
    return ""
