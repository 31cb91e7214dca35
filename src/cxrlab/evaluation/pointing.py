"""The pointing game: whether the maps of a report's words hit the findings' exact masks.

    pointing.jsonl   one line per study: every finding that its report mentions, and the scores of each map
    pointing.json    means over findings with intervals by patient, for each map

A finding enters when it is on the image, has a mask, and the report mentions it with the right kind and side; its
words are those that the reader marks in the report. Two findings of the same kind and side are one, with both masks.
A resumed run continues at the study where it stopped and ends with the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.egress import connection_operational_fields
from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.core.json_values import nan_if_none
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.plan import Plan, Work, count_lines
from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding, Span, Study
from cxrlab.core.runs import Run, finished, progress
from cxrlab.core.terminal import track
from cxrlab.core.vocabulary import observation
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.views import frontal_index
from cxrlab.evaluation.config import PointingConfig
from cxrlab.evaluation.load_model import open_model
from cxrlab.evaluation.saliency_maps import (
    GRADIENTS,
    MAX_MEAN,
    RELATIVE,
    MapName,
    check_maps_available,
    compute_part_maps,
    count_layers,
    parse_map,
)
from cxrlab.findings.reader import read
from cxrlab.metrics.base import Metric, mean_tally
from cxrlab.metrics.statistics.intervals import Resamples
from cxrlab.models.hf.families import Grid

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Image
    from cxrlab.models.hf.model import HfModel

EVIDENCE, POINTING = "pointing.jsonl", "pointing.json"
OPERATIONAL = ("batch_size", *connection_operational_fields("loading.connection"))
# Without a grid there is no cell: the tolerance is half a cell of LLaVA-Rad's grid of 37 x 37.
_NO_GRID = 1 / 37 / 2


class Kind(NamedTuple):
    """Observation and side, which must both be right for a finding to count as reported."""

    observation: str
    side: str | None


def pointing(config: PointingConfig, out: Path) -> PointingTable:
    """Play the pointing game over a split; a stopped run is continued, a finished one is left as it is.

    Raises:
        DataError: When no study of the split has findings with masks, or no report mentions any of them.
    """
    if finished(out, config, seed=config.seed, operational=OPERATIONAL):
        return PointingTable.from_json(read_json(out / POINTING))
    ready = _prepare(config)
    model, corpus, ids, names = ready.model, ready.corpus, ready.ids, ready.names
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        done = run.done(EVIDENCE)
        for study, image, report in _reports(model, corpus, track(ids, "pointing"), config, done):
            if study.id not in done:
                run.append(EVIDENCE, _score_study(model, corpus, study, image, report, names, config.smooth))
        table = summarise((record for _, record in read_jsonl(run.path(EVIDENCE))), names, config)
        run.write(POINTING, table)
    return table


def plan_pointing(config: PointingConfig, out: Path | None = None) -> Plan:
    """Score a batch of the studies.

    Args:
        out: A run folder that may hold a part of the run already.
    """
    state = progress(out, config, seed=config.seed, operational=OPERATIONAL)
    if state == "finished":
        return Plan("pointing", ())
    done = count_lines(out, EVIDENCE) if state == "begun" else 0
    ready = _prepare(config)
    some = ready.ids[: config.batch_size]
    start = time.perf_counter()
    for study, image, report in _reports(ready.model, ready.corpus, iter(some), config, ()):
        _score_study(ready.model, ready.corpus, study, image, report, ready.names, config.smooth)
    each = (time.perf_counter() - start) / len(some)
    work = Work("studies", "study", len(ready.ids), each, done, measured=len(some))
    notes = ("loading the model, and the intervals.", "studies of which more findings are reported take longer.")
    return Plan("pointing", (work,), facts={"maps_per_finding": len(ready.names)}, left_out=notes)


class _Prepared(NamedTuple):
    """The model, and the studies that are played with."""

    model: HfModel
    corpus: Corpus
    ids: list[str]
    names: list[MapName]


def _prepare(config: PointingConfig) -> _Prepared:
    """Choose the studies and open the model; whatever is wrong is refused here."""
    corpus = load_corpus(config.data)
    ids = [study.id for study in corpus.studies(config.split) if study.findings and study.masks]
    if not ids:
        raise DataError(
            f"{corpus.path} has no study with findings and masks in its {config.split} split; "
            "make one with 'cxrlab data make phantom'."
        )
    if config.n is not None and config.n < len(ids):
        drawn = generator(config.seed, "pointing").permutation(len(ids))[: config.n]
        ids = [ids[index] for index in sorted(drawn.tolist())]
    wanted = [parse_map(name) for name in config.maps]
    eager = not wanted or any(name.of_attention for name in wanted)
    loading = replace(config.loading, attention="eager") if eager else config.loading
    model = check_maps_available(
        open_model(config.model, loading, [corpus.egress_data]), wanted or [parse_map(MAX_MEAN)]
    )
    return _Prepared(model, corpus, ids, wanted or list_all_maps(model))


def list_all_maps(model: HfModel) -> list[MapName]:
    """Every layer by itself, their maximum, both also relative, and the gradients where the model gives them."""
    attention = [MAX_MEAN, *(f"layer:{layer}" for layer in range(1, count_layers(model) + 1))]
    names = [*attention, *(RELATIVE + name for name in attention)]
    return [parse_map(name) for name in [*names, *(GRADIENTS if model.capabilities.gradients else ())]]


def _reports(
    model: HfModel, corpus: Corpus, ids: Iterator[str], config: PointingConfig, done: Collection[str]
) -> Iterator[tuple[Study, Image, str]]:
    """Each study with its image and the report to explain, as its tokens decode.

    A batch is generated whole even if one study is missing: another grouping may change the last bit of a number.
    """
    from cxrlab.models.hf.prompting import written_text

    while keys := list(islice(ids, config.batch_size)):
        if all(key in done for key in keys):
            continue
        batch = [corpus[key] for key in keys]
        images = [corpus.image(study, frontal_index(study)) for study in batch]
        if config.report == "reference":
            texts = [(study.sections and study.sections.findings) or "" for study in batch]
        else:
            answers = model.answers(images, [_indication(study) for study in batch], config.decoding)
            texts = [answer[0].text for answer in answers]
        for study, image, text in zip(batch, images, texts, strict=True):
            yield study, image, written_text(model.processor, text)


def _indication(study: Study) -> str | None:
    return study.sections.indication if study.sections else None


def _score_study(
    model: HfModel,
    corpus: Corpus,
    study: Study,
    image: Image,
    report: str,
    names: Sequence[MapName],
    smooth: float,
) -> dict[str, Any]:
    """One line of `pointing.jsonl`."""
    masks: dict[Kind, NDArray[np.bool_]] = {}
    if frontal_index(study) == 0:  # masks belong to the first image
        for index, finding in enumerate(study.findings or ()):
            mask = corpus.mask(study, index) if finding.present else None
            if mask is not None and mask.any():
                before = masks.get(_kind(finding))
                masks[_kind(finding)] = mask if before is None else before | mask
    targets = {kind: spans for kind, spans in find_reported(report).items() if kind in masks}
    reported = []
    if targets:
        maps = compute_part_maps(model, image, report, list(targets.values()), names, _indication(study), smooth)
        for kind, part in zip(targets, maps, strict=True):
            mask, scores = masks[kind], {}
            for name in names:
                values = part.values[name.text]
                if not name.of_attention:
                    tolerance = part.grid.half_cell if part.grid else _NO_GRID * max(mask.shape)
                    score = score_on_pixels(values, mask, tolerance)
                elif part.grid is not None:
                    score = score_on_grid(values, mask, part.grid)
                else:
                    raise ValueError("a map of attention without its grid")
                scores[name.text] = asdict(score)
            reported.append({**kind._asdict(), "maps": scores})
    return {"id": study.id, "patient": study.patient, "present": len(masks), "reported": reported}


def find_reported(report: str) -> Mapping[Kind, tuple[Span, ...]]:
    """The present findings of a report, and the spans of their words."""
    found: dict[Kind, tuple[Span, ...]] = {}
    for finding in read(report):
        if finding.present and finding.span is not None:
            found[_kind(finding)] = (*found.get(_kind(finding), ()), finding.span)
    return found


def _kind(finding: Finding) -> Kind:
    sided = observation(finding.observation).sided
    return Kind(finding.observation, finding.side.value if sided and finding.side is not None else None)


FIGURES = ("hit", "chance", "mass", "area")


@dataclass(frozen=True)
class Figure:
    """A mean over findings; the ends of its 95 % interval are not-a-number where there are too few patients."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class MapRow:
    """The scores of one map: over findings with a small mask, over all, and the share of hits by observation.

    `hit`, `chance`, `mass` and `area` are those of `PointingScore`.
    """

    localised: Mapping[str, Figure]
    all: Mapping[str, Figure]
    by_observation: Mapping[str, Figure]


@dataclass(frozen=True)
class PointingTable:
    """The result of a run of the pointing game."""

    model: str
    split: str
    report: str  # `generated` or `reference`
    studies: int
    present: int  # findings with a mask on the images of `studies`
    reported: int  # those that the report mentions with the right kind and side; only these are scored
    localised: float  # largest share of the image that a localised finding's mask covers
    tolerance: str  # how near the hottest cell or pixel must be for a hit, in words
    maps: Mapping[str, MapRow]

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> PointingTable:
        """The content of `pointing.json`."""
        maps = {}
        for name, row in found["maps"].items():
            parts: dict[str, dict[str, Figure]] = {part: {} for part in row}
            for part, figures in row.items():
                for key, one in figures.items():
                    value, low, high = (nan_if_none(one[end]) for end in ("value", "low", "high"))
                    parts[part][key] = Figure(value, low, high, one["n"])
            maps[name] = MapRow(**parts)
        return cls(**{**found, "maps": maps})


def summarise(records: Iterable[Mapping[str, Any]], names: Sequence[MapName], config: PointingConfig) -> PointingTable:
    """The table from the lines of `pointing.jsonl`; `DataError` when no report mentions a present finding."""
    studies = present = 0
    patients: list[str] = []
    kinds: list[str] = []
    aims: list[list[list[float]]] = []
    for record in records:
        studies, present = studies + 1, present + int(record["present"])
        for finding in record["reported"]:
            patients.append(str(record["patient"]))
            kinds.append(str(finding["observation"]))
            aims.append([[finding["maps"][name.text][key] for key in FIGURES] for name in names])
    if not aims:
        raise DataError(
            f"none of the {present} findings with a mask on {studies} images is reported with the right kind and side, "
            "so there is nothing to point at; train the model further, or give --report reference."
        )
    values = np.array(aims)  # [findings, maps, figures]
    small = values[:, 0, FIGURES.index("area")] <= config.localised
    resamples = Resamples(patients, trials=config.trials, rng=generator(config.seed, "pointing", "resamples"))
    card = Metric("pointing", "higher", (0.0, 1.0), None, "findings outside the group")
    observations, count = sorted(set(kinds)), len(FIGURES)
    rows = {}
    for k, name in enumerate(names):
        columns = [values[:, k, figure] for figure in range(count)]
        groups = [*(np.where(small, column, np.nan) for column in columns), *columns]
        groups += [np.where(np.array(kinds) == kind, columns[0], np.nan) for kind in observations]
        tallies = [mean_tally(card, group) for group in groups]
        ends = resamples.estimates(tallies)
        found = [Figure(t.value, end.low, end.high, t.n) for t, end in zip(tallies, ends, strict=True)]
        rows[name.text] = MapRow(
            localised=dict(zip(FIGURES, found[:count], strict=True)),
            all=dict(zip(FIGURES, found[count : 2 * count], strict=True)),
            by_observation=dict(zip(observations, found[2 * count :], strict=True)),
        )
    return PointingTable(
        model=config.model,
        split=config.split,
        report=config.report,
        studies=studies,
        present=present,
        reported=len(aims),
        localised=config.localised,
        tolerance="half a cell of the model's grid; of one of 37 x 37 where it has none",
        maps=rows,
    )


Array = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class PointingScore:
    """The scores of one map and one mask, each 0 to 1."""

    hit: float  # whether the hottest cell or pixel lies in the mask, give or take the tolerance
    chance: float  # share of the image that would be a hit
    mass: float  # share of the map's heat inside the mask
    area: float  # share of the image that the mask covers


def score_on_grid(values: Array, mask: Mask, grid: Grid) -> PointingScore:
    """A map [rows, columns] of the grid against a mask [H, W] of the image.

    The heat of a cell is spread evenly over it. The part of a mask outside the model's crop can be neither hit nor
    covered.
    """
    rows, columns = grid.cells(*mask.shape)
    pixels, covered = np.zeros(values.shape), np.zeros(values.shape)
    inside = np.ix_(rows >= 0, columns >= 0)
    where = np.ix_(rows[rows >= 0], columns[columns >= 0])
    np.add.at(pixels, where, 1.0)
    np.add.at(covered, where, mask[inside].astype(np.float64))
    # A cell that a small image leaves without any pixel covers nothing.
    share = np.divide(covered, pixels, out=np.zeros(values.shape), where=pixels > 0)
    return _score(values, covered > 0, share, mask)


def score_on_pixels(values: Array, mask: Mask, reach: float) -> PointingScore:
    """A map [H, W] of the image against a mask of the same size; a hit lies at most `reach` pixels beside the mask."""
    return _score(values, dilate(mask, int(reach)), mask.astype(np.float64), mask)


def dilate(mask: Mask, pixels: int) -> Mask:
    """The mask and everything up to so many pixels away in each direction (a square, not a disc)."""
    out = mask
    for axis in (0, 1):
        # Counts the mask pixels within reach by differences of a running sum: the same time for any reach.
        running = np.cumsum(np.insert(out.astype(np.int64), 0, 0, axis=axis), axis=axis)
        length = out.shape[axis]
        high = np.minimum(np.arange(length) + pixels + 1, length)
        low = np.maximum(np.arange(length) - pixels, 0)
        out = np.take(running, high, axis=axis) > np.take(running, low, axis=axis)
    return np.asarray(out)


def _score(values: Array, reached: Mask, share: NDArray[np.float64], mask: Mask) -> PointingScore:
    heat = values.astype(np.float64)
    total = float(heat.sum())
    # A map without heat counts as one that is the same everywhere.
    spread = heat / total if total > 0 else np.full(heat.shape, 1 / heat.size)
    hottest = values == values.max()  # ties count as a random one of them
    return PointingScore(
        hit=float(reached[hottest].mean()),
        chance=float(reached.mean()),
        mass=float((spread * share).sum()),
        area=float(mask.mean()),
    )
