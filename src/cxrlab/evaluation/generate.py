"""A report from a model for every study of a split, in a run folder.

    predictions.jsonl   one `Prediction` a study, in the order of the corpus; that of an image mended later stands last
    small_images.jsonl  images that are smaller than the model's input
    predictions_*.jsonl the same for some studies with wrong images (noise, blank, swapped), see `wrong_images`
    examples.jsonl      a few studies with image and reference, for a page
    summary.json        how many, which were missing and why, and cautions
    batch.json          only where a batch did not fit in memory: the smaller one that was used

A run that was stopped goes on at the study where it stopped and ends with the same bytes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.connection import free_of
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.memory import BatchSize
from cxrlab.core.protocols import CAUTIONS
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run, finished, state
from cxrlab.core.streams import Remarks
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.evaluation.answering import Images, Missing, Writer, answer_all, try_longest
from cxrlab.evaluation.cautions import domain_caution, input_side, of_server, size_caution
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.examples import choose, keep_examples
from cxrlab.evaluation.external import refuse_familiar, refuse_familiar_library
from cxrlab.evaluation.loading import open_model
from cxrlab.evaluation.wrong_images import answer_wrong_images
from cxrlab.models.names import parse_name

if TYPE_CHECKING:
    from cxrlab.core.protocols import Image

PREDICTIONS, SUMMARY, SMALL = "predictions.jsonl", "summary.json", "small_images.jsonl"
FREE = (
    "batch_size",
    "allow_missing",
    *free_of("loading.connection"),
)  # settings that may change when a run is continued


@dataclass(frozen=True)
class Generation:
    """What a run of `generate` came to.

    Args:
        model: Name of the model.
        corpus: What the card says of the corpus: name, source, licence, counts.
        split: Which split.
        studies: Studies asked for.
        predictions: Studies with a prediction.
        distinct_reports: Different texts among the predictions.
        mean_words: Words in a report, on average; not a number when there is none.
        missing: Studies without one.
        controls: Kind of wrong image → studies that were answered with it too.
        allow_missing: Whether it was allowed to finish without the missing ones; `score` honours that.
        cautions: What whoever reads the reports must know; see `cautions`.
    """

    model: str
    corpus: dict[str, Any]
    split: str
    studies: int
    predictions: int
    distinct_reports: int
    mean_words: float
    missing: tuple[Missing, ...] = ()
    controls: Mapping[str, int] = field(default_factory=dict)
    allow_missing: bool = False
    cautions: tuple[str, ...] = ()


def generate(config: GenerateConfig, out: Path) -> Generation:
    """Write a report for every study of a split into RUN/predictions.jsonl.

    A study whose image is missing or unreadable, or for which the model refuses to write, gets no prediction: it is
    listed in RUN/summary.json and the command fails with the count, after all others are written; mend the image and
    run the command again, or allow it with --allow-missing.

    Args:
        config: Settings.
        out: Run folder; a stopped run is continued, a finished one with the same settings is left as it is.
    """
    if finished(out, config, seed=config.seed, free=FREE):
        return _stored(read_json(out / SUMMARY))
    corpus = load_corpus(config.data)
    ids = chosen_ids(corpus, config.split, config.n, config.seed)
    _refuse_self_retrieval(config)
    if config.external:
        refuse_familiar_library(config.model, corpus)
    # Before the folder is made: a wrong name leaves nothing behind.
    model = open_model(config.model, config.loading, [corpus.shown])
    writer = Writer(model, config.decoding)
    if config.external:
        refuse_familiar(model, corpus)
    images = Images(corpus, indications=config.indication)
    caution = domain_caution(model, synthetic=corpus.card.synthetic)
    if caution:
        Remarks(sys.stderr).write(f"caution: {caution}\n")
    if len(ids) > config.batch_size and not (out / PREDICTIONS).exists():
        try_longest(writer, images, ids)
    with Run.open(out, config, seed=config.seed, free=FREE) as run:
        batch_size = BatchSize(config.batch_size, out)
        sized = _Sized(images, run, input_side(model))
        missing = answer_all(run, PREDICTIONS, writer, sized, ids, batch_size, "writing reports")
        lost = {item.id for item in missing}
        controls = answer_wrong_images(run, writer, corpus, [key for key in ids if key not in lost], config, batch_size)
        keep_examples(run, corpus, choose(ids, config.examples, config.seed), lost)
        small = size_caution(len(sized.small), len(ids) - sum(not one.refused for one in missing), sized.side)
        if small:
            Remarks(sys.stderr).write(f"caution: {small}\n")
        cautions = [one for one in (caution, small) if one]
        summary = _summary(run, config, corpus, len(ids), missing, controls, cautions)
        run.write(SUMMARY, summary)
        if missing and not config.allow_missing:
            raise without_report(missing, len(ids), out / SUMMARY)
    return summary


class _Sized(Images):
    """Images of which those that are smaller than the model's input are noted in the run, each once.

    Args:
        images: The images.
        run: The open run.
        side: The shorter side of the input; None notes nothing.
    """

    def __init__(self, images: Images, run: Run, side: int | None) -> None:
        super().__init__(images.corpus, indications=images.indications)
        self.side, self._run = side, run
        self.small = run.done(SMALL) if run.path(SMALL).is_file() else set()

    def image(self, key: str) -> Image:
        """[H, W] or [H, W, 3] in [0, 1]."""
        image = super().image(key)
        height, width = image.shape[:2]
        if self.side is not None and min(height, width) < self.side and key not in self.small:
            self.small.add(key)
            self._run.append(SMALL, {"id": key, "height": height, "width": width})
        return image


def _stored(summary: dict[str, Any]) -> Generation:
    """What an earlier run came to."""
    missing = tuple(Missing(**item) for item in summary.pop("missing", ()))
    words = summary.pop("mean_words", None)
    cautions = tuple(summary.pop(CAUTIONS, ()))
    return Generation(**summary, mean_words=math.nan if words is None else words, missing=missing, cautions=cautions)


def chosen_ids(corpus: Corpus, split: str, n: int | None, seed: int) -> list[str]:
    """Ids to answer, in corpus order; a split without a study is a `DataError`.

    Args:
        corpus: Where the studies are.
        split: train, val or test.
        n: How many are drawn; every study of the split when None.
        seed: Decides which are drawn.
    """
    ids = corpus.ids(split)
    if not ids:
        raise corpus.no_study_in(split)
    if n is None or n >= len(ids):
        return list(ids)
    drawn = generator(seed, "generate").permutation(len(ids))[:n]
    return [ids[index] for index in sorted(drawn.tolist())]


def without_report(missing: Sequence[Missing], studies: int, summary: Path) -> DataError:
    """The error for studies whose image could not be read, or for which the model refused to write.

    Args:
        missing: Those studies, at least one.
        studies: How many were asked for.
        summary: The file that lists the missing ones.
    """
    refused = sum(one.refused for one in missing)
    unread = len(missing) - refused
    parts = [f"{unread} of {studies} studies have no readable frontal image"] if unread else []
    if refused:
        parts.append(f"the model refused to write on {refused} of {studies} studies")
    return DataError(
        f"{' and '.join(parts)} (listed in {summary}; for example: {missing[0].reason}) Mend them and run again, or "
        "give --allow-missing."
    )


def missing_of(run: Path) -> frozenset[str] | None:
    """Studies that got nothing in a run that came to its end; None where its summary lists none such."""
    summary = read_json(run / SUMMARY) if (run / SUMMARY).is_file() else None
    missing = summary.get("missing") if isinstance(summary, dict) else None
    if not isinstance(missing, list):
        return None
    return frozenset(str(item["id"]) for item in missing if isinstance(item, dict) and "id" in item)


def how_to_finish(run: Path) -> str:
    """What finishes a run that has not finished: the same command again helps only where no study stays without."""
    if state(run) == "interrupted" and (missing := missing_of(run)):
        return (
            f"{len(missing)} of its studies have nothing (the reasons are in {run / SUMMARY}): mend them and run its "
            "command again, or run it with --allow-missing"
        )
    return "run its command again to finish it"


def _refuse_self_retrieval(config: GenerateConfig) -> None:
    """Among its own train split every image would find itself, and the scores would mean nothing."""
    name = parse_name(config.model)
    if name.kind == "retrieval" and config.split == "train" and Path(name.argument).resolve() == config.data.resolve():
        raise ConfigError(
            f"'{config.model}' looks among the train split of {config.data} itself, where every image finds itself; "
            "give --split val or test, or another corpus."
        )


def _summary(
    run: Run,
    config: GenerateConfig,
    corpus: Corpus,
    studies: int,
    missing: tuple[Missing, ...],
    controls: Mapping[str, int],
    cautions: Sequence[str],
) -> Generation:
    records = [record for _, record in read_jsonl(run.path(PREDICTIONS))]
    reports = [str(record["report"]) for record in records]
    card = corpus.card
    return Generation(
        model=config.model,
        corpus={"name": card.name, "source": card.source, "licence": card.licence, "counts": dict(card.counts)},
        split=config.split,
        studies=studies,
        predictions=len(reports),
        distinct_reports=len(set(reports)),
        mean_words=sum(len(text.split()) for text in reports) / len(reports) if reports else math.nan,
        missing=missing,
        controls=controls,
        allow_missing=config.allow_missing,
        cautions=(*cautions, *of_server(record.get(CAUTIONS) for record in records)),
    )
