"""Where a model looked when it wrote a word: maps of chosen or all words of one report, over the image.

explain.json               the report, its words, and which files show them
words.png                  every word that was explained, in the order of the report
explain/WORD.png           each occurrence of a word (down) with each map (across)
explain/WORD.MAP.npy       the numbers: [occurrences, rows, columns], in pixels of the image for gradients
explain/WORD.sheet.png     every layer and head, where the map `sheet` was asked for
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.connection import free_of
from cxrlab.core.egress import Shown
from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.core.progress import track
from cxrlab.core.records import Span
from cxrlab.core.runs import Run, finished
from cxrlab.data.corpus import load_corpus
from cxrlab.data.images import load_image
from cxrlab.data.views import image_of
from cxrlab.evaluation.config import ExplainConfig
from cxrlab.evaluation.explain_files import EXPLAIN, WORDS, Explanation, WordWriter, stored
from cxrlab.evaluation.loading import open_model
from cxrlab.evaluation.map_names import parse_map
from cxrlab.evaluation.word_maps import explainable, part_maps
from cxrlab.evaluation.word_spans import every_word, occurrences

if TYPE_CHECKING:
    from cxrlab.models.hf.model import HfModel

FREE = free_of("loading.connection")  # settings that may change when a run is continued


@dataclass(frozen=True, eq=False)
class _Subject:
    """An image [H, W], or a picture [H, W, 3], with what is known of it, and whose it may be."""

    name: str
    image: NDArray[np.float32]
    indication: str | None
    shown: Shown


def explain(config: ExplainConfig, out: Path) -> Explanation:
    """Explain words of one report in a run folder; a finished run with the same settings is left as it is.

    Args:
        config: Settings.
        out: Run folder.

    Raises:
        DataError: When the report has no word, or not the one that was asked for.
        ConfigError: When the model cannot give a map; see `explainable`.
    """
    if finished(out, config, free=FREE):
        return stored(read_json(out / EXPLAIN))
    names = [parse_map(name) for name in config.maps]
    subject = _subject(config)
    eager = any(name.of_attention for name in names)
    loading = replace(config.loading, attention="eager") if eager else config.loading
    model = explainable(open_model(config.model, loading, [subject.shown]), names)
    report = _report(model, subject, config)
    if not every_word(report):
        who = "the model wrote a report" if config.report is None else "--report is a text"
        raise DataError(f"{who} without a word, so there is nothing to explain; give --report TEXT with words.")
    groups = _chosen(report, config.word)
    parts = [[span] for spans in groups.values() for span in spans]
    maps = part_maps(model, subject.image, report, parts, names, subject.indication, config.smooth)
    with Run.open(out, config, free=FREE) as run:
        steps = track(maps, "explaining words", total=len(parts))
        writer = WordWriter(run, subject.image, names, config.alpha)
        grid = None
        for word, spans in groups.items():
            found = list(islice(steps, len(spans)))
            writer.write(word, spans, found)
            grid = found[0].grid
        next(steps, None)  # asked for one more, the bar knows that it has come to its end
        done = Explanation(
            model=config.model,
            image=subject.name,
            size=(subject.image.shape[0], subject.image.shape[1]),
            report=report,
            written_by="model" if config.report is None else "user",
            grid=None if grid is None else (grid.rows, grid.columns),
            maps=config.maps,
            words=tuple(sorted(writer.words, key=lambda word: word.spans)),
            overview=WORDS if writer.overview() else None,
        )
        run.write(EXPLAIN, done)
    return done


def _subject(config: ExplainConfig) -> _Subject:
    if config.image is not None:
        shown = Shown(str(config.image), synthetic=False)  # a file says nothing of where it comes from
        return _Subject(str(config.image), load_image(config.image), config.indication, shown)
    corpus = load_corpus(str(config.data))
    study = corpus[str(config.study)]
    told = study.sections.indication if study.sections else None
    return _Subject(study.id, image_of(corpus, study), config.indication or told, corpus.shown)


def _report(model: HfModel, subject: _Subject, config: ExplainConfig) -> str:
    """The report as its tokens write it."""
    from cxrlab.models.hf.prompting import written_text

    if config.report is not None:
        return written_text(model.processor, config.report)
    answer = model.answers([subject.image], [subject.indication], config.decoding)[0][0]
    return written_text(model.processor, answer.text)


def _chosen(report: str, words: Sequence[str]) -> dict[str, list[Span]]:
    """Word in lower case → where it stands; the words asked for, or every word in order of first mention."""
    if words:
        asked = dict.fromkeys(" ".join(word.lower().split()) for word in words)
        return {word: occurrences(report, word) for word in asked}
    groups: dict[str, list[Span]] = {}
    for start, end in every_word(report):
        groups.setdefault(report[start:end].lower(), []).append((start, end))
    return groups
