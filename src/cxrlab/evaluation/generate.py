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
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.endpoints import connection_operational_fields
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_json
from cxrlab.core.image_codec import encode_png, to_uint8
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.memory import BatchSize
from cxrlab.core.protocols import CAUTIONS, HasTrainingCollections
from cxrlab.core.randomness import generator
from cxrlab.core.records import EXAMPLES, THUMBS, Example, Study
from cxrlab.core.runs import Run, finished, state
from cxrlab.core.terminal import NoticeStream
from cxrlab.data.card import check_external, check_no_shared_collections, collections_of
from cxrlab.data.contact_sheet import finding_words
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.views import load_selected_image, selected_image
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.image_dependence import generate_for_control_images
from cxrlab.evaluation.inference import (
    Images,
    MissingReport,
    ReportGenerator,
    generate_predictions,
    try_longest_indication,
)
from cxrlab.evaluation.open_models import open_model
from cxrlab.models.model_card import SYNTHETIC
from cxrlab.models.names import parse_name

if TYPE_CHECKING:
    from cxrlab.core.protocols import Image, ImageToText

PREDICTIONS, SUMMARY, SMALL = "predictions.jsonl", "summary.json", "small_images.jsonl"
OPERATIONAL = (
    "batch_size",
    "allow_missing",
    *connection_operational_fields("loading.connection"),
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
    missing: tuple[MissingReport, ...] = ()
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
    if finished(out, config, seed=config.seed, operational=OPERATIONAL):
        return _stored(read_json(out / SUMMARY))
    corpus = load_corpus(config.data)
    ids = select_studies(corpus, config.split, config.n, config.seed)
    _refuse_self_retrieval(config)
    if config.external:
        check_external_library(config.model, corpus)
    # Before the folder is made: a wrong name leaves nothing behind.
    model = open_model(config.model, config.loading, [corpus.egress_data])
    writer = ReportGenerator(model, config.decoding)
    if config.external:
        check_external_model(model, corpus)
    images = Images(corpus, indications=config.indication)
    caution = caution_domain(model, synthetic=corpus.card.synthetic)
    if caution:
        NoticeStream(sys.stderr).write(f"caution: {caution}\n")
    if len(ids) > config.batch_size and not (out / PREDICTIONS).exists():
        try_longest_indication(writer, images, ids)
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        batch_size = BatchSize(config.batch_size, out)
        sized = _Sized(images, run, read_input_side(model))
        missing = generate_predictions(run, PREDICTIONS, writer, sized, ids, batch_size, "writing reports")
        lost = {item.id for item in missing}
        controls = generate_for_control_images(
            run, writer, corpus, [key for key in ids if key not in lost], config, batch_size
        )
        write_examples(run, corpus, sample_ids(ids, config.examples, config.seed), lost)
        small = caution_image_size(len(sized.small), len(ids) - sum(not one.refused for one in missing), sized.side)
        if small:
            NoticeStream(sys.stderr).write(f"caution: {small}\n")
        cautions = [one for one in (caution, small) if one]
        summary = _summary(run, config, corpus, len(ids), missing, controls, cautions)
        run.write(SUMMARY, summary)
        if missing and not config.allow_missing:
            raise missing_reports_error(missing, len(ids), out / SUMMARY)
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
    missing = tuple(MissingReport(**item) for item in summary.pop("missing", ()))
    words = summary.pop("mean_words", None)
    cautions = tuple(summary.pop(CAUTIONS, ()))
    return Generation(**summary, mean_words=math.nan if words is None else words, missing=missing, cautions=cautions)


def select_studies(corpus: Corpus, split: str, n: int | None, seed: int) -> list[str]:
    """Ids to answer, in corpus order; a split without a study is a `DataError`.

    Args:
        corpus: Where the studies are.
        split: train, val or test.
        n: How many are drawn; every study of the split when None.
        seed: Decides which are drawn.
    """
    ids = corpus.ids(split)
    if not ids:
        raise corpus.no_study_error(split)
    if n is None or n >= len(ids):
        return list(ids)
    drawn = generator(seed, "generate").permutation(len(ids))[:n]
    return [ids[index] for index in sorted(drawn.tolist())]


def missing_reports_error(missing: Sequence[MissingReport], studies: int, summary: Path) -> DataError:
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


def read_missing_studies(run: Path) -> frozenset[str] | None:
    """Studies that got nothing in a run that came to its end; None where its summary lists none such."""
    summary = read_json(run / SUMMARY) if (run / SUMMARY).is_file() else None
    missing = summary.get("missing") if isinstance(summary, dict) else None
    if not isinstance(missing, list):
        return None
    return frozenset(str(item["id"]) for item in missing if isinstance(item, dict) and "id" in item)


def explain_how_to_finish(run: Path) -> str:
    """What finishes a run that has not finished: the same command again helps only where no study stays without."""
    if state(run) == "interrupted" and (missing := read_missing_studies(run)):
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
    missing: tuple[MissingReport, ...],
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
        cautions=(*cautions, *collect_server_cautions(record.get(CAUTIONS) for record in records)),
    )


def caution_domain(model: ImageToText, *, synthetic: bool, name: str | None = None) -> str | None:
    """The caution where a model of synthetic images meets others; None where it does not, or nobody knows.

    Args:
        model: The model; what it was trained on stands in its card, or in that of the corpus that it looks among.
        synthetic: Whether a card says that the images are synthetic.
        name: What to call the model.
    """
    if synthetic or not _synthetic_alone(model):
        return None
    return (
        f"{name or model.name} was trained on synthetic images only; its reports of real radiographs are unreliable, "
        "however confident it is."
    )


def _synthetic_alone(model: ImageToText) -> bool:
    kind, _, argument = model.name.partition(":")
    if kind == "retrieval":
        return load_corpus(Path(argument)).card.synthetic
    return getattr(model, "trained_on", None) == SYNTHETIC


def read_input_side(model: ImageToText) -> int | None:
    """The shorter side of a model's input in pixels; None where it has none of its own."""
    side: int | None = getattr(model, "input_side", None)
    return side


def caution_image_size(small: int, images: int, side: int | None) -> str | None:
    """The caution where images are smaller than the model's input; None where none is.

    Args:
        small: How many are.
        images: Of how many.
        side: The shorter side of the input.
    """
    if not small:
        return None
    return (
        f"{small:,} of {images:,} images {'is' if small == 1 else 'are'} smaller than the model's input of {side} px."
    )


def collect_server_cautions(answers: Iterable[Any]) -> list[str]:
    """Cautions that a server gave with its answers, each with how many answers had it.

    Args:
        answers: For each prediction what stands under `cautions`, or None.
    """
    told = list(answers)
    counts = Counter(sentence for some in told for sentence in some or ())
    return [f"The server's caution on {count:,} of {len(told):,} reports: {text}" for text, count in counts.items()]


LIBRARY_KIND = "retrieval"


def check_external_library(name: str, corpus: Corpus) -> None:
    """Raise a `DataError` when the model of this name looks among images of a collection of the corpus.

    Asked by name, before the images are indexed, which may take long.
    """
    parsed = parse_name(name)
    if parsed.kind == LIBRARY_KIND:
        check_external(load_corpus(Path(parsed.argument)).card, corpus.card)


def check_external_model(model: ImageToText, corpus: Corpus) -> None:
    """Raise a `DataError` when the model has seen a collection of the corpus, a `ConfigError` when it cannot tell."""
    if parse_name(model.name).kind == LIBRARY_KIND:
        return  # see check_external_library
    # isinstance alone: from Python 3.12 on it looks at the class, where a property stands that may be absent.
    if not (isinstance(model, HasTrainingCollections) and hasattr(model, "collections")):
        raise ConfigError(
            f"'{model.name}' does not tell which collections it has learnt from, so nobody can say whether "
            f"{corpus.path} is external to it; leave out --external."
        )
    check_no_shared_collections(
        model.collections, collections_of(corpus.card), f"the model '{model.name}'", corpus.card.name
    )


THUMB_SIZE = 224


def sample_ids(ids: Sequence[str], count: int, seed: int) -> list[str]:
    """`count` of these ids (all when there are fewer), in their order; the same for every model of a seed."""
    order = generator(seed, "examples").permutation(len(ids))[:count]
    return [ids[index] for index in sorted(order.tolist())]


def write_examples(run: Run, corpus: Corpus, ids: Sequence[str], unreadable: Collection[str] = ()) -> None:
    """Write `examples.jsonl` and the images of these studies into the run.

    Args:
        run: The open run.
        corpus: Where the studies are.
        ids: Which to keep; those already kept are left as they are.
        unreadable: Ids to pass over because their image cannot be read.
    """
    done = run.done(EXAMPLES)
    for number, study_id in enumerate(ids):
        if study_id in done or study_id in unreadable:
            continue
        study = corpus[study_id]
        # Numbered, not named after the study: an id may hold characters that a file name may not.
        thumb = f"{THUMBS}/{number:03d}.png"
        run.write(thumb, encode_png(to_uint8(load_selected_image(corpus, study, THUMB_SIZE))))
        run.append(EXAMPLES, _example(study, thumb))


def _example(study: Study, thumb: str) -> Example:
    person = f"{study.age:g} {study.sex or ''}".strip() if study.age is not None else study.sex
    number, picture = selected_image(study)
    parts = ("picture" if picture else study.images[number].view, person)
    truth = None
    if study.findings is not None:
        truth = tuple(finding_words(finding) for finding in study.findings if finding.present)
    return Example(
        id=study.id,
        thumb=thumb,
        heading=" · ".join(part for part in parts if part),
        truth=truth,
        reference=study.sections.findings if study.sections else study.caption,
    )
