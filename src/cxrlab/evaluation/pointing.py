"""Whether maps point at what the words name: the pointing game on images with exact masks.

    pointing.jsonl   one study a line: every finding that its report tells, and how each map aims at it
    pointing.json    means over findings with intervals by patient, for each map

A finding enters when it is on the image, has a mask, and the report tells it with the right kind and side; the
words are those that the reader marks in the report. Two findings of the same kind and side are one, with both
masks. A stopped run goes on at the study where it stopped and ends with the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.connection import free_of
from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.progress import track
from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding, Span, Study
from cxrlab.core.runs import Run, finished
from cxrlab.core.vocabulary import observation
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.views import frontal
from cxrlab.evaluation.aim import aim_of_cells, aim_of_pixels
from cxrlab.evaluation.config import PointingConfig
from cxrlab.evaluation.loading import open_model
from cxrlab.evaluation.map_names import GRADIENTS, MAX_MEAN, RELATIVE, MapName, parse_map
from cxrlab.evaluation.pointing_table import PointingTable, table_of
from cxrlab.evaluation.word_maps import PartMaps, explainable, layer_count, part_maps
from cxrlab.findings.reader import read

if TYPE_CHECKING:
    from cxrlab.core.protocols import Image
    from cxrlab.models.hf.model import HfModel

EVIDENCE, POINTING = "pointing.jsonl", "pointing.json"
FREE = ("batch_size", *free_of("loading.connection"))
# Without a grid there is no cell: the reach is half of what a raster of 37 x 37, LLaVA-Rad's, would have.
_NO_GRID = 1 / 37 / 2


class Kind(NamedTuple):
    """What has to be right for a finding to count as told."""

    observation: str
    side: str | None


class _Target(NamedTuple):
    """A finding of an image, and the words that tell it."""

    kind: Kind
    mask: NDArray[np.bool_]
    spans: tuple[Span, ...]


def pointing(config: PointingConfig, out: Path) -> PointingTable:
    """Play the pointing game over a split, in a run folder.

    Args:
        config: Settings.
        out: Run folder; a stopped run is continued, a finished one with the same settings is left as it is.

    Raises:
        DataError: When no study of the split has findings with masks, or no report tells any of them.
    """
    if finished(out, config, seed=config.seed, free=FREE):
        return PointingTable.from_json(read_json(out / POINTING))
    corpus = load_corpus(config.data)
    ids = _chosen(corpus, config)
    asked = [parse_map(name) for name in config.maps]
    eager = not asked or any(name.of_attention for name in asked)
    loading = replace(config.loading, attention="eager") if eager else config.loading
    model = explainable(open_model(config.model, loading, [corpus.shown]), asked or [parse_map(MAX_MEAN)])
    names = asked or every_map(model)
    with Run.open(out, config, seed=config.seed, free=FREE) as run:
        done = run.done(EVIDENCE)
        for study, image, report in _reports(model, corpus, track(ids, "pointing"), config, done):
            if study.id not in done:
                run.append(EVIDENCE, _aimed(model, corpus, study, image, report, names, config.smooth))
        table = table_of((record for _, record in read_jsonl(run.path(EVIDENCE))), names, config)
        run.write(POINTING, table)
    return table


def every_map(model: HfModel) -> list[MapName]:
    """Every layer by itself, their maximum, both also relative, and the gradients where the model gives them."""
    attention = [MAX_MEAN, *(f"layer:{layer}" for layer in range(1, layer_count(model) + 1))]
    names = [*attention, *(RELATIVE + name for name in attention)]
    return [parse_map(name) for name in [*names, *(GRADIENTS if model.capabilities.gradients else ())]]


def _chosen(corpus: Corpus, config: PointingConfig) -> list[str]:
    """Ids with masks, in corpus order, drawn by the seed where fewer are asked for."""
    ids = [study.id for study in corpus.studies(config.split) if study.findings and study.masks]
    if not ids:
        raise DataError(
            f"{corpus.path} has no study with findings and masks in its {config.split} split; "
            "make one with 'cxrlab data make phantom'."
        )
    if config.n is None or config.n >= len(ids):
        return ids
    drawn = generator(config.seed, "pointing").permutation(len(ids))[: config.n]
    return [ids[index] for index in sorted(drawn.tolist())]


def _reports(
    model: HfModel, corpus: Corpus, ids: Iterator[str], config: PointingConfig, done: Collection[str]
) -> Iterator[tuple[Study, Image, str]]:
    """Each study with its image and the report to explain, as its tokens write it.

    A batch of which something is missing is answered whole: another grouping may change the last bit of a number.
    """
    from cxrlab.models.hf.prompting import written_text

    while keys := list(islice(ids, config.batch_size)):
        if all(key in done for key in keys):
            continue
        batch = [corpus[key] for key in keys]
        images = [corpus.image(study, frontal(study)) for study in batch]
        if config.report == "reference":
            texts = [(study.sections and study.sections.findings) or "" for study in batch]
        else:
            answers = model.answers(images, [_indication(study) for study in batch], config.decoding)
            texts = [answer[0].text for answer in answers]
        for study, image, text in zip(batch, images, texts, strict=True):
            yield study, image, written_text(model.processor, text)


def _indication(study: Study) -> str | None:
    return study.sections.indication if study.sections else None


def _aimed(
    model: HfModel,
    corpus: Corpus,
    study: Study,
    image: Image,
    report: str,
    names: Sequence[MapName],
    smooth: float,
) -> dict[str, Any]:
    """The line of one study."""
    masks = _masks(corpus, study)
    targets = [_Target(kind, masks[kind], spans) for kind, spans in told(report).items() if kind in masks]
    found = []
    if targets:
        parts = [target.spans for target in targets]
        maps = part_maps(model, image, report, parts, names, _indication(study), smooth)
        for target, part in zip(targets, maps, strict=True):
            aims = {name.text: asdict(_aim(name, part, target.mask)) for name in names}
            found.append({**target.kind._asdict(), "maps": aims})
    return {"id": study.id, "patient": study.patient, "present": len(masks), "told": found}


def _aim(name: MapName, part: PartMaps, mask: NDArray[np.bool_]) -> Any:
    values = part.values[name.text]
    if name.of_attention:
        if part.grid is None:
            raise ValueError("a map of attention without its grid")
        return aim_of_cells(values, mask, part.grid)
    return aim_of_pixels(values, mask, part.grid.half_cell if part.grid else _NO_GRID * max(mask.shape))


def _masks(corpus: Corpus, study: Study) -> dict[Kind, NDArray[np.bool_]]:
    """Where each present finding lies; none when the frontal image is not the first, which the masks belong to."""
    masks: dict[Kind, NDArray[np.bool_]] = {}
    if frontal(study) != 0:
        return masks
    for index, finding in enumerate(study.findings or ()):
        mask = corpus.mask(study, index) if finding.present else None
        if mask is not None and mask.any():
            before = masks.get(_kind(finding))
            masks[_kind(finding)] = mask if before is None else before | mask
    return masks


def told(report: str) -> Mapping[Kind, tuple[Span, ...]]:
    """What a report says to be there, and the characters that say it."""
    found: dict[Kind, tuple[Span, ...]] = {}
    for finding in read(report):
        if finding.present and finding.span is not None:
            found[_kind(finding)] = (*found.get(_kind(finding), ()), finding.span)
    return found


def _kind(finding: Finding) -> Kind:
    sided = observation(finding.observation).sided
    return Kind(finding.observation, finding.side.value if sided and finding.side is not None else None)
