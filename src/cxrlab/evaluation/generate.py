"""Generate a report for every study of a split, or for every frontal image, into a run folder.

    predictions.jsonl   one `Prediction` per study (`s1`) or image (`s1#0`), in the order of the corpus; those repaired
                        later come last
    predictions_*.jsonl the same for some studies with control images (noise, blank, swapped)
    small_images.jsonl  images that are smaller than the model's input
    examples.jsonl      a few studies with image and reference, for a page
    summary.json        how many, which are missing and why, and cautions
    batch.json          only where a batch did not fit in memory: the smaller size that was used

A run that was stopped continues at the study where it stopped and ends with the same bytes.
"""

from __future__ import annotations

import copy
import math
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cxrlab.core.egress import connection_operational_fields
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_json
from cxrlab.core.image_codec import encode_png, to_uint8
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.model_interfaces import CAUTIONS, HasParameterCount, HasTrainingCollections, StudyContext
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.randomness import generator
from cxrlab.core.records import EXAMPLES, THUMBS, Example, Prediction, Study
from cxrlab.core.runs import Run, finished, state
from cxrlab.core.terminal import NoticeStream, track
from cxrlab.core.workers import Engine, Workers, open_workers
from cxrlab.data.card import check_external, check_no_shared_collections, collections_of
from cxrlab.data.config import ContextConfig
from cxrlab.data.contact_sheet import finding_words
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.study_context import SelectedContext, select_context
from cxrlab.data.views import FRONTAL, SelectedImage, selected_image
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.image_dependence import pair_with_other_patients
from cxrlab.evaluation.load_model import open_model
from cxrlab.evaluation.report_files import split_image_id
from cxrlab.evaluation.shared_generation import ReportWorker, SharedGenerator
from cxrlab.models.decoding import Decoding, SupportsConcurrentCalls, SupportsDecoding
from cxrlab.models.http_client import run_concurrently
from cxrlab.models.model_card import SYNTHETIC, ModelCard
from cxrlab.models.model_registry import parse_name

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Contexts, Generated, Image, ImageToText

PREDICTIONS, SUMMARY, SMALL = "predictions.jsonl", "summary.json", "small_images.jsonl"
ANSWERS_KEY = "answers"  # key of a prediction that holds every answer where several were generated
WINDOW = 8  # batches
LOOK_AHEAD = 2  # studies begun and not yet written, as a multiple of the concurrency
LIBRARY_KIND = "retrieval"  # models that return the report of the most similar image of a corpus
THUMB_SIZE = 224
GREY = 0.5  # value of a blank control image
# Settings that may change when a run is continued.
OPERATIONAL = ("batch_size", "allow_missing", *connection_operational_fields("loading.connection"))


@dataclass(frozen=True)
class MissingReport:
    """A study without a prediction, the reason, and whether the model refused."""

    id: str
    reason: str
    refused: bool = False


@dataclass(frozen=True)
class Generation:
    """Summary of a run of `generate`.

    Args:
        controls: Kind of control image → studies that have a report for it too.
        allow_missing: Whether the run was allowed to finish without the missing studies; `score` then accepts them as missing.
    """

    model: str
    corpus: dict[str, Any]  # from the card of the corpus: name, source, licence, counts
    split: str
    studies: int  # studies requested; images where `unit` is image
    predictions: int  # those with a prediction
    distinct_reports: int  # different texts among the predictions
    mean_words: float  # words per report; not-a-number without a report
    missing: tuple[MissingReport, ...] = ()
    controls: Mapping[str, int] = field(default_factory=dict)
    allow_missing: bool = False
    cautions: tuple[str, ...] = ()  # what a reader of the reports must know
    unit: str = "study"  # what a prediction belongs to: study or image
    without_frontal: int = 0  # studies left out by image, because none of their images is frontal
    parameters: int | None = None  # weights of the model; None where it does not report them
    cache: str | None = None  # key-value cache of generation, and why it has no fixed size or no graphs


def generate(config: GenerateConfig, out: Path, engine: Engine | None = None) -> Generation:
    """Generate a report for every study of a split, or every frontal image, into RUN/predictions.jsonl.

    A study gets no prediction if its image is missing or unreadable, or if the model refuses. Such studies are listed
    in RUN/summary.json, and the command fails with their count after all others are generated. Repair the images and
    run the command again, or allow missing predictions with --allow-missing. A stopped run is continued, a finished
    one with the same settings is returned unchanged.

    Args:
        engine: Share the batches among workers; the files are those of one process.
    """
    if engine is not None:
        engine.check_local(config.model)
    with open_workers(partial(open_report_worker, config), engine) as workers:
        return _generate(config, out, workers)


def open_report_worker(config: GenerateConfig) -> ReportWorker:
    """The worker of a run of `generate`."""
    ready = prepare(config)
    assert isinstance(ready.generator, ReportGenerator)
    return ReportWorker(ready.generator, ready.images)


def _generate(config: GenerateConfig, out: Path, workers: Workers | None) -> Generation:
    if finished(out, config, seed=config.seed, operational=OPERATIONAL):
        summary = read_json(out / SUMMARY)
        missing = tuple(MissingReport(**item) for item in summary.pop("missing", ()))
        mean_words, cautions = summary.pop("mean_words", None), tuple(summary.pop(CAUTIONS, ()))
        mean_words = math.nan if mean_words is None else mean_words
        return Generation(**summary, mean_words=mean_words, missing=missing, cautions=cautions)
    ready = prepare(config, workers)
    corpus, ids, writer, images = ready.corpus, ready.ids, ready.generator, ready.images
    model = writer.model
    if len(ids) > config.batch_size and not (out / PREDICTIONS).exists():
        try_longest_indication(writer, images, ids)
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        batch_size = BatchSize(config.batch_size, out)
        images.log_small(
            partial(run.append, SMALL), read_input_side(model), run.done(SMALL) if run.path(SMALL).is_file() else ()
        )
        missing = generate_predictions(run, PREDICTIONS, writer, images, ids, batch_size, "generating reports")
        without = {item.id for item in missing}
        answered = [key for key in ids if key not in without]
        controls = generate_for_control_images(run, writer, images, answered, config, batch_size)
        write_examples(run, images, sample_ids(ids, config.examples, config.seed), without)
        readable = len(ids) - sum(not one.refused for one in missing)
        if small := caution_image_size(len(images.small), readable, images.input_side):
            NoticeStream(sys.stderr).write(f"caution: {small}\n")
        records = [record for _, record in read_jsonl(run.path(PREDICTIONS))]
        reports = [str(record["report"]) for record in records]
        card = corpus.card
        generation = Generation(
            model=config.model,
            corpus={"name": card.name, "source": card.source, "licence": card.licence, "counts": dict(card.counts)},
            split=config.split,
            studies=len(ids),
            predictions=len(reports),
            distinct_reports=len(set(reports)),
            mean_words=sum(len(text.split()) for text in reports) / len(reports) if reports else math.nan,
            missing=missing,
            controls=controls,
            allow_missing=config.allow_missing,
            cautions=(
                *(one for one in (*ready.cautions, small, images.caution_incomplete(ids)) if one),
                *collect_server_cautions(record.get(CAUTIONS) for record in records),
            ),
            unit=config.unit,
            without_frontal=ready.without_frontal,
            parameters=model.parameter_count if isinstance(model, HasParameterCount) else None,
            cache=read_cache(model),
        )
        run.write(SUMMARY, generation)
        if missing and not config.allow_missing:
            raise missing_reports_error(missing, len(ids), out / SUMMARY, config.unit, config.context)
    return generation


@dataclass(frozen=True, eq=False)
class Preparation:
    """A run of `generate` before its folder is made."""

    corpus: Corpus
    ids: list[str]  # studies, or images by image
    without_frontal: int
    generator: ReportGenerator | SharedGenerator
    images: Images
    cautions: tuple[str, ...]


def prepare(config: GenerateConfig, workers: Workers | None = None) -> Preparation:
    """Choose the studies and open the model, here or in the workers; everything that can fail early fails here."""
    corpus = load_corpus(config.data)
    by_image = config.unit == "image"
    if by_image:
        ids, without_frontal = select_images(corpus, config.split, config.n, config.seed)
    else:
        ids, without_frontal = select_studies(corpus, config.split, config.n, config.seed), 0
    name = parse_name(config.model)
    if name.kind == LIBRARY_KIND and config.split == "train" and Path(name.argument).resolve() == config.data.resolve():
        raise ConfigError(
            f"'{config.model}' retrieves from the train split of {config.data} itself, where every image finds itself; "
            "give --split val or test, or another corpus."
        )
    if config.external:
        check_external_library(config.model, corpus)
    generator: ReportGenerator | SharedGenerator
    if workers is None:
        generator = ReportGenerator(open_model(config.model, config.loading, [corpus.egress_data]), config.decoding)
    else:
        workers.start([corpus.egress_data], config.loading.connection.egress_permission)
        generator = SharedGenerator(workers)
    model = generator.model
    if config.external:
        check_external_model(model, corpus)
    check_context(model, config.context)
    images = Images(corpus, indications=config.indication, by_image=by_image, context=config.context)
    card = getattr(model, "card", None)
    found = (
        caution_domain(model, synthetic=corpus.card.synthetic),
        caution_context(model.name, card, config.context),
    )
    cautions = tuple(filter(None, found))
    for caution in cautions:
        NoticeStream(sys.stderr).write(f"caution: {caution}\n")
    return Preparation(corpus, ids, without_frontal, generator, images, cautions)


def select_studies(corpus: Corpus, split: str, n: int | None, seed: int) -> list[str]:
    """Ids of `n` studies of a split (all when None) drawn by the seed, in corpus order."""
    ids = corpus.ids(split)
    if not ids:
        raise corpus.no_study_error(split)
    return _draw(ids, n, seed)


def select_images(corpus: Corpus, split: str, n: int | None, seed: int) -> tuple[list[str], int]:
    """Ids `study#k` of `n` frontal images of a split, as `select_studies`, and the number of studies without one.

    Images that the source lists and the corpus lacks are numbered after the others, so that frontal ones are reported
    as missing. Of a study with a caption it is the first image.
    """
    ids: list[str] = []
    without = 0
    for study in corpus.studies(split):
        images = (*study.images, *(study.absent_images or ()))
        places = [place for place, image in enumerate(images) if image.view in FRONTAL]
        places = places if study.caption is None else [0]
        ids += [f"{study.id}#{place}" for place in places]
        without += not places
    if not ids and not without:
        raise corpus.no_study_error(split)
    if not ids:
        raise DataError(f"no study of the split '{split}' of {corpus.path} has a PA, AP or frontal image.")
    return _draw(ids, n, seed), without


def _draw(ids: Sequence[str], n: int | None, seed: int) -> list[str]:
    if n is None or n >= len(ids):
        return list(ids)
    drawn = generator(seed, "generate").permutation(len(ids))[:n]
    return [ids[index] for index in sorted(drawn.tolist())]


class Images:
    """The inputs of a model for each study: its frontal image (of a caption the picture) and the indication.

    With `indications=False` the indication is withheld. With `by_image` a key is `study#k`, image k of that study. With
    a `context` of several images or a prior, these are inputs too.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        indications: bool = True,
        by_image: bool = False,
        context: ContextConfig | None = None,
    ) -> None:
        self.corpus, self.indications, self.by_image = corpus, indications, by_image
        self.context = context or ContextConfig()
        self.input_side: int | None = None
        self.small: set[str] = set()
        self._log: Callable[[dict[str, Any]], None] | None = None

    def log_small(
        self, log: Callable[[dict[str, Any]], None], input_side: int | None, done: Collection[str] = ()
    ) -> None:
        """Log images whose shorter side is below a model's input, each once, those that are `done` excepted."""
        self._log, self.input_side, self.small = log, input_side, set(done)

    def add_small(self, record: dict[str, Any]) -> None:
        """Log an image that is smaller than a model's input, unless it is logged already."""
        if self._log and record["id"] not in self.small:
            self.small.add(record["id"])
            self._log(record)

    def controls(self, keys: Sequence[str]) -> tuple[str, int, dict[str, str]] | None:
        """What makes the same control images of these studies elsewhere, see `with_controls`; None for the right ones."""
        return None

    def with_controls(self, controls: tuple[str, int, dict[str, str]] | None) -> Images:
        """These images, or the control images in their place."""
        if controls is None:
            return self
        given = {"indications": self.indications, "by_image": self.by_image, "context": self.context}
        return ControlImages(self.corpus, *controls, **given)  # type: ignore[arg-type]

    def study(self, key: str) -> Study:
        """The study that a key belongs to."""
        return self.corpus[split_image_id(key)[0] if self.by_image else key]

    def selected(self, key: str) -> SelectedImage:
        """Which image of its study a key stands for; a `DataError` when the corpus has no such image."""
        study, number = self.study(key), split_image_id(key)[1] if self.by_image else None
        if number is None:
            chosen = self._selected(key)
            return selected_image(study) if chosen is None else SelectedImage(chosen.images[0].number, colour=False)
        if number >= len(study.images):
            absent = (study.absent_images or ())[number - len(study.images)].path
            raise DataError(f"{self.corpus.path / absent} is listed for study '{study.id}' and is not there.")
        return SelectedImage(number, colour=study.caption is not None)

    def load(self, key: str, size: int | None = None) -> Image:
        """The image of a key as `load_selected_image` returns that of a study."""
        number, colour = self.selected(key)
        return (self.corpus.rgb if colour else self.corpus.image)(self.study(key), number, size)

    def indication(self, key: str) -> str | None:
        """Reason for the examination; None when there is none, or when it is withheld."""
        if not self.indications:
            return None
        study = self.study(key)
        return study.sections.indication if study.sections else None

    def given(self, key: str) -> tuple[Image, str | StudyContext | None]:
        """The first image of a study, and its indication or, with further images or a prior, its whole context."""
        return self.image(key), self.beside_image(key)

    def beside_image(self, key: str) -> str | StudyContext | None:
        """What a model receives of a study beside the first image."""
        chosen = self._selected(key)
        if chosen is None:
            return self.indication(key)
        further = tuple(self.corpus.image(one.study, one.number) for one in chosen.images[1:])
        return replace(chosen.described(self.indication(key)), further_images=further)

    def text_length(self, key: str) -> int:
        """Characters of the indication and the prior report."""
        chosen = self.select(key)
        prior = chosen.prior_report if isinstance(chosen, SelectedContext) else None
        return len(self.indication(key) or "") + len(prior or "")

    def select(self, key: str) -> SelectedContext | str | None:
        """The context of a study, or why it is left out; None where a model receives one image alone."""
        study = self.study(key) if not self.context.is_single else None
        if study is None or study.caption is not None:
            return None
        return select_context(self.corpus, study, self.context)

    def caution_incomplete(self, ids: Sequence[str]) -> str | None:
        """The caution where studies lack images or a prior that the settings name."""
        lacking = Counter[str]()
        chosen = [self.select(key) for key in ids]
        for one in chosen:
            lacking.update(one.missing if isinstance(one, SelectedContext) else ())
        if not lacking:
            return None
        count = sum(isinstance(one, SelectedContext) and bool(one.missing) for one in chosen)
        why = ", ".join(f"{reason}: {number:,}" for reason, number in lacking.most_common())
        return f"On {count:,} of {len(ids):,} studies the model received less than the settings name ({why})."

    def _selected(self, key: str) -> SelectedContext | None:
        chosen = self.select(key)
        if isinstance(chosen, str):
            raise DataError(f"study '{key}' is left out: {chosen}.")
        return chosen

    def image(self, key: str) -> Image:
        """[H, W] or [H, W, 3] in [0, 1]; a `DataError` when there is no readable frontal image or picture."""
        image = self.load(key)
        height, width = image.shape[:2]
        if self.input_side and min(height, width) < self.input_side:
            self.add_small({"id": key, "height": height, "width": width})
        return image


class ReportGenerator:
    """A model with its decoding settings; a `ConfigError` where the model does not support them."""

    def __init__(self, model: ImageToText, decoding: Decoding) -> None:
        if not isinstance(model, SupportsDecoding) and decoding != Decoding():
            raise ConfigError(f"'{model.name}' does not support decoding settings; omit the --decoding flags.")
        self.model = model
        self.decoding = decoding

    def until(self, stop: threading.Event) -> Self:
        """The same for a model that supports concurrent calls; it retries nothing once `stop` is set."""
        assert isinstance(self.model, SupportsConcurrentCalls)
        bound = copy.copy(self)
        bound.model = self.model.until(stop)
        return bound

    def outcomes(
        self, images: Images, batches: Iterable[Sequence[str]]
    ) -> Iterator[list[tuple[str, Prediction | MissingReport]]]:
        """The prediction of each study, or why it has none, for each batch in order."""
        return (list(generate_batch(self, images, keys)) for keys in batches)

    def generate(self, images: Sequence[Image], indications: Contexts) -> list[list[Generated]]:
        """Answers for each image, best first."""
        if not images:
            return []
        if isinstance(self.model, SupportsDecoding):
            return self.model.answers(images, indications, self.decoding)
        return [[answer] for answer in self.model.generate(images, indications)]


def try_longest_indication(writer: ReportGenerator | SharedGenerator, images: Images, ids: Sequence[str]) -> None:
    """Generate once for the study with the longest indication and discard the result, so that failures come early.

    Examples are a prompt that is too long, weights that give no numbers, and too little memory for a single image.
    Models whose answers may cost money are not tried.
    """
    if writer.model.capabilities.black_box:
        return
    longest = max(ids, key=images.text_length)
    BatchSize(1).map([longest], lambda alone: list(writer.outcomes(images, [alone])))


def generate_predictions(
    run: Run, file: str, writer: ReportGenerator | SharedGenerator, images: Images, ids: Sequence[str],
    batch_size: BatchSize, label: str,
) -> tuple[MissingReport, ...]:  # fmt: skip
    """Append a prediction to `file` for every study that has none yet; returns the studies that get none.

    Those are studies whose image cannot be read, and those for which the model refuses: a refusal is no report and must
    not be scored as one. A later run tries them again.

    Batches hold prompts of similar length: a window of a few batches is sorted by the length of its prompts, and its
    predictions are appended when all of it is answered. Batches depend on the ids alone, never on what was done
    before, so that a stopped run ends with the same bytes. Where a batch does not fit in memory, the window is planned
    again with batches of half the size. A model whose answers may cost money never gets the same request twice: its
    windows are single batches, of which only the missing studies are sent, or its studies are sent concurrently.
    """
    costly = writer.model.capabilities.black_box
    missing: dict[str, MissingReport] = {}

    def generate_rest(size: int) -> None:
        done = run.done(file) | missing.keys()
        answered: dict[str, Prediction] = {}  # of the current window, not written yet
        batches = plan_batches(images, ids, size, window=size * (1 if costly else WINDOW))
        # A batch that was begun is generated whole again: another grouping may change the last bit of a number.
        wanted = [
            [] if done.issuperset(batch) else [key for key in batch if not (costly and key in done)]
            for batch, _ in batches
        ]
        outcomes = writer.outcomes(images, filter(None, wanted))
        planned = zip(batches, wanted, strict=True)
        for (_, finished_window), keys in track(planned, label, total=len(ids), size=lambda one: len(one[0][0])):
            for key, outcome in next(outcomes) if keys else ():
                if key in done:
                    continue
                if isinstance(outcome, Prediction):
                    answered[key] = outcome
                else:
                    missing[key] = outcome
            for key in finished_window:
                if key in answered:
                    run.append(file, answered.pop(key))

    if isinstance(writer, ReportGenerator) and isinstance(writer.model, SupportsConcurrentCalls):
        done = run.done(file)
        left = [key for key in ids if key not in done]
        outcomes = generate_concurrently(writer, writer.model.concurrency, images, left)
        for key, outcome in track(outcomes, label, total=len(left)):
            if isinstance(outcome, Prediction):
                run.append(file, outcome)
            else:
                missing[key] = outcome
    elif costly:
        generate_rest(batch_size.current)  # a second try would send again what may have cost money
    else:
        batch_size.retry(generate_rest, len(ids))
    return tuple(missing[key] for key in ids if key in missing)


def generate_concurrently(
    writer: ReportGenerator, concurrency: int, images: Images, keys: Sequence[str]
) -> Iterator[tuple[str, Prediction | MissingReport]]:
    """The prediction of each study, or why it has none, in order; the next study is sent when any other is answered.

    Few answers wait for that of an earlier study: a killed run repeats no more than these.
    """
    outcomes: dict[str, Prediction | MissingReport] = {}
    ordered: deque[tuple[str, Prediction | MissingReport]] = deque()
    waiting = iter(keys)
    begun = settled = 0

    def settle() -> None:
        nonlocal settled
        while settled < len(keys) and keys[settled] in outcomes:
            ordered.append((keys[settled], outcomes.pop(keys[settled])))
            settled += 1

    def take() -> tuple[str, Image, str | StudyContext | None] | None:
        nonlocal begun
        while begun - settled < LOOK_AHEAD * concurrency and (key := next(waiting, None)) is not None:
            begun += 1
            try:
                return key, *images.given(key)
            except DataError as error:
                outcomes[key] = MissingReport(key, str(error))
                settle()
        return None

    def answer(item: tuple[str, Image, str | StudyContext | None], stop: threading.Event) -> Prediction | MissingReport:
        key, image, context = item
        return make_outcome(key, writer.until(stop).generate([image], [context])[0])

    for (key, *_), outcome in run_concurrently(answer, take, concurrency):
        outcomes[key] = outcome
        settle()
        while ordered:
            yield ordered.popleft()
    yield from ordered


def plan_batches(
    images: Images, ids: Sequence[str], size: int, window: int
) -> list[tuple[Sequence[str], Sequence[str]]]:
    """Batches of ids by windows, each window sorted by the length of its prompts.

    Beside the last batch of a window stand the ids of the window in their order; beside the others nothing.
    """
    planned: list[tuple[Sequence[str], Sequence[str]]] = []
    for start in range(0, len(ids), window):
        inside = ids[start : start + window]
        order = inside if len(inside) <= size else sorted(inside, key=images.text_length)
        batches = [order[first : first + size] for first in range(0, len(order), size)]
        planned += [*((batch, ()) for batch in batches[:-1]), (batches[-1], inside)]
    return planned


def generate_batch(
    writer: ReportGenerator, images: Images, keys: Sequence[str]
) -> Iterator[tuple[str, Prediction | MissingReport]]:
    """The prediction of each study, or why it has none; first the studies without a readable image."""
    readable, batch_images, contexts = [], [], []
    for key in keys:
        try:
            image, context = images.given(key)
        except DataError as error:
            yield key, MissingReport(key, str(error))
            continue
        readable.append(key)
        batch_images.append(image)
        contexts.append(context)
    answers = writer.generate(batch_images, contexts)
    for key, found in zip(readable, answers, strict=True):
        yield key, make_outcome(key, found)


def make_outcome(key: str, answers: Sequence[Generated]) -> Prediction | MissingReport:
    """The prediction of a study, unless the model only refused."""
    reports = [answer for answer in answers if not answer.refused]
    if reports:
        return make_prediction(key, reports)
    return MissingReport(key, describe_refusal(key, answers), refused=True)


def make_prediction(key: str, answers: Sequence[Generated]) -> Prediction:
    """The best answer as the prediction of a study; where there are several, all of them are kept under `answers`."""

    def confidence(answer: Generated) -> dict[str, Any]:
        known = {"mean_logprob": answer.mean_logprob, "tokens": answer.tokens}
        return {name: value for name, value in known.items() if value is not None}

    best = answers[0]
    extra = dict(best.extra)
    if len(answers) > 1:
        extra[ANSWERS_KEY] = [{"report": one.text, "confidence": confidence(one), **one.extra} for one in answers]
    return Prediction(key, best.text, confidence=confidence(best), extra=extra)


def describe_refusal(key: str, answers: Sequence[Generated]) -> str:
    """The reason for a study that the model refused, with the shortened answer."""
    answer = repr(shorten(answers[0].text, 80, placeholder=" …")) if answers else "nothing"
    return f"the model refused to generate a report for study '{key}': {answer}."


class ControlImages(Images):
    """A control image for each study: noise by the seed, blank, or swapped with the image of a partner study."""

    def __init__(
        self,
        corpus: Corpus,
        control: str,
        seed: int,
        partners: dict[str, str],
        *,
        indications: bool = True,
        by_image: bool = False,
        context: ContextConfig | None = None,
    ) -> None:
        super().__init__(corpus, indications=indications, by_image=by_image, context=context)
        self.control, self.seed, self.partners = control, seed, partners

    def controls(self, keys: Sequence[str]) -> tuple[str, int, dict[str, str]]:
        """Kind, seed, and the partners of these studies."""
        return self.control, self.seed, {key: self.partners[key] for key in keys if key in self.partners}

    def image(self, key: str) -> Image:
        """The control image in the shape of the right one, [H, W] or [H, W, 3] in [0, 1]."""
        if self.control == "swapped":
            return super().image(self.partners[key])
        shape = super().image(key).shape
        if self.control == "blank":
            return np.full(shape, GREY, np.float32)
        return generator(self.seed, "noise", key).random(shape, dtype=np.float32)

    def beside_image(self, key: str) -> str | StudyContext | None:
        """Control images in place of the further ones too; indication and prior report stay."""
        text = super().beside_image(key)
        if not isinstance(text, StudyContext):
            return text
        if self.control == "swapped":
            other = super().beside_image(self.partners[key])
            if not isinstance(other, StudyContext):
                raise DataError(f"study '{self.partners[key]}' has a caption and no images by view to swap with.")
            return replace(text, image_names=other.image_names, further_images=other.further_images)
        further = tuple(
            np.full(one.shape, GREY, np.float32)
            if self.control == "blank"
            else generator(self.seed, "noise", key, str(number)).random(one.shape, dtype=np.float32)
            for number, one in enumerate(text.further_images, start=1)
        )
        return replace(text, further_images=further)


def control_file(control: str) -> str:
    """Name of the predictions for this kind of control image."""
    return f"predictions_{control}.jsonl"


def generate_for_control_images(
    run: Run, writer: ReportGenerator | SharedGenerator, right: Images, ids: Sequence[str], config: GenerateConfig,
    batch_size: BatchSize,
) -> dict[str, int]:  # fmt: skip
    """Generate for some studies with each kind of control image; returns the number of reports for each kind.

    A kind has none if it cannot be made (swapped, when one patient has more than half of the studies), or if a model at
    an address refuses its first image: a guard counts such images and blocks clients that continue.
    """
    order = generator(config.seed, "controls").permutation(len(ids))[: config.control_studies]
    chosen = [ids[place] for place in sorted(order.tolist())]
    partners = pair_with_other_patients(
        [right.study(key).patient for key in chosen], chosen, generator(config.seed, "controls", "swapped")
    )
    counts = dict.fromkeys(config.controls, 0)
    for control in counts if chosen else ():
        if control == "swapped" and partners is None:
            continue
        swapped = {key: chosen[place] for key, place in zip(chosen, partners or (), strict=partners is not None)}
        images = right.with_controls((control, config.seed, swapped))
        label = f"the same with {control} images"
        file = control_file(control)
        if writer.model.capabilities.black_box:
            first = generate_predictions(run, file, writer, images, chosen[:1], BatchSize(1), f"the first of {label}")
            if any(one.refused for one in first):
                continue
        lost = generate_predictions(run, file, writer, images, chosen, batch_size, label)
        counts[control] = len(chosen) - len(lost)
    return counts


def missing_reports_error(
    missing: Sequence[MissingReport],
    requested: int,
    summary: Path,
    unit: str = "study",
    context: ContextConfig | None = None,
) -> DataError:
    """The error for missing predictions, at least one of `requested`; they are listed in the file `summary`."""
    refused = sum(one.refused for one in missing)
    unread = len(missing) - refused
    what, unreadable = (
        ("images", "cannot be read") if unit == "image" else ("studies", "have no readable frontal image")
    )
    if context is not None and not context.is_single:
        unreadable = "lack a readable image or, with --missing drop, something that --views and --prior name"
    parts = [f"{unread} of {requested} {what} {unreadable}"] if unread else []
    if refused:
        parts.append(f"the model refused {refused} of {requested} {what}")
    return DataError(
        f"{' and '.join(parts)} (listed in {summary}; for example: {missing[0].reason}) Repair the images and run again, or "
        "give --allow-missing."
    )


def check_context(model: ImageToText, context: ContextConfig) -> None:
    """Refuse several images or a prior for a model that takes one image, or whose prompts have no words for them."""
    if context.is_single:
        return
    if not model.capabilities.several_images:
        raise ConfigError(f"'{model.name}' takes one image and an indication per study; leave out --views and --prior.")
    prompts = getattr(model, "prompts", None)
    if prompts is not None:
        for report in ("", "Clear lungs.") if "report" in context.prior else (None,):
            prompts.ask(StudyContext(None, ("frontal",), report))


def caution_context(name: str, card: ModelCard | None, context: ContextConfig) -> str | None:
    """The caution where a model receives another context than in its training; None otherwise or where unknown."""
    if card is None or card.stage not in ("finetune", "prefer"):
        return None

    def without_default(views: Sequence[str], prior: Sequence[str]) -> dict[str, tuple[str, ...]]:
        return {"views": () if tuple(views) == ("frontal",) else tuple(views), "prior": tuple(prior)}

    trained = without_default(card.extra.get("views", ()), card.extra.get("prior", ()))
    now = without_default(context.views, context.prior)
    if trained == now:
        return None

    def flags(settings: Mapping[str, Sequence[str]]) -> str:
        given = [f"--{setting} {','.join(values)}" for setting, values in settings.items() if values]
        return " ".join(given) or "one image per study"

    return f"{name} was trained with {flags(trained)} and is used with {flags(now)}."


def read_missing_studies(run: Path) -> frozenset[str] | None:
    """Studies without a prediction according to the summary of a run; None without a summary that lists them."""
    summary = read_json(run / SUMMARY) if (run / SUMMARY).is_file() else None
    missing = summary.get("missing") if isinstance(summary, dict) else None
    if not isinstance(missing, list):
        return None
    return frozenset(str(item["id"]) for item in missing if isinstance(item, dict) and "id" in item)


def explain_how_to_finish(run: Path) -> str:
    """How to finish a run: running the same command again helps only where every study can be answered."""
    if state(run) == "interrupted" and (missing := read_missing_studies(run)):
        return (
            f"{len(missing)} of its studies have nothing (the reasons are in {run / SUMMARY}): repair the images and run its "
            "command again, or run it with --allow-missing"
        )
    return "run its command again to finish it"


def caution_domain(model: ImageToText, *, synthetic: bool, name: str | None = None) -> str | None:
    """The caution where a model trained on synthetic images is used on real ones; None otherwise or where unknown.

    What it was trained on is in its card, or that of the corpus that it retrieves from. `synthetic` is true where a card
    says that the images are synthetic; `name` replaces the model's name in the caution.
    """
    kind, _, argument = model.name.partition(":")
    if synthetic:
        return None
    if kind == LIBRARY_KIND:
        trained_on_synthetic = load_corpus(Path(argument)).card.synthetic
    else:
        trained_on_synthetic = getattr(model, "trained_on", None) == SYNTHETIC
    if not trained_on_synthetic:
        return None
    return (
        f"{name or model.name} was trained on synthetic images only; its reports of real radiographs are unreliable, "
        "however confident it is."
    )


def read_input_side(model: ImageToText) -> int | None:
    """The shorter side of a model's input in pixels; None where it has no fixed input size."""
    side: int | None = getattr(model, "input_side", None)
    return side


def read_cache(model: ImageToText) -> str | None:
    """The key-value cache that a model has generated with; None where it reports none."""
    cache: str | None = getattr(model, "generation_cache", None)
    return cache


def caution_image_size(small: int, images: int, side: int | None) -> str | None:
    """The caution where `small` of `images` images are smaller than the model's input of `side` pixels."""
    if not small:
        return None
    return (
        f"{small:,} of {images:,} images {'is' if small == 1 else 'are'} smaller than the model's input of {side} px."
    )


def collect_server_cautions(answers: Iterable[Any]) -> list[str]:
    """Cautions of a server in its answers (for each prediction its `cautions`, or None), each with its count."""
    every = list(answers)
    counts = Counter(sentence for some in every for sentence in some or ())
    return [f"The server's caution on {count:,} of {len(every):,} reports: {text}" for text, count in counts.items()]


def check_external_library(name: str, corpus: Corpus) -> None:
    """Raise a `DataError` when the model of this name retrieves from images of a collection of the corpus.

    Checked by name, before the images are indexed, which may take long.
    """
    parsed = parse_name(name)
    if parsed.kind == LIBRARY_KIND:
        check_external(load_corpus(Path(parsed.argument)).card, corpus.card)


def check_external_model(model: ImageToText, corpus: Corpus) -> None:
    """Raise `DataError` when the model was trained on a collection of the corpus, `ConfigError` when that is unknown."""
    if parse_name(model.name).kind == LIBRARY_KIND:
        return  # see check_external_library
    # Not isinstance alone: from Python 3.12 on it inspects the class, whose property may raise AttributeError.
    if not (isinstance(model, HasTrainingCollections) and hasattr(model, "collections")):
        raise ConfigError(
            f"'{model.name}' does not list the collections it was trained on, so {corpus.path} may not be external to "
            "it; leave out --external."
        )
    check_no_shared_collections(
        model.collections, collections_of(corpus.card), f"the model '{model.name}'", corpus.card.name
    )


def sample_ids(ids: Sequence[str], count: int, seed: int) -> list[str]:
    """`count` of these ids (all when there are fewer), in their order; the same for every model of a seed."""
    order = generator(seed, "examples").permutation(len(ids))[:count]
    return [ids[index] for index in sorted(order.tolist())]


def write_examples(run: Run, images: Images, ids: Sequence[str], unreadable: Collection[str] = ()) -> None:
    """Write `examples.jsonl` and the images of these studies into the run, without those that are `unreadable`."""
    done = run.done(EXAMPLES)
    for number, key in enumerate(ids):
        if key in done or key in unreadable:
            continue
        study = images.study(key)
        # Numbered, not named after the study: an id may contain characters that a file name may not.
        thumb = f"{THUMBS}/{number:03d}.png"
        run.write(thumb, encode_png(to_uint8(images.load(key, THUMB_SIZE))))
        demographics = f"{study.age:g} {study.sex or ''}".strip() if study.age is not None else study.sex
        place, picture = images.selected(key)
        parts = ("picture" if picture else study.images[place].view, demographics)
        truth = None
        if study.findings is not None:
            truth = tuple(finding_words(finding) for finding in study.findings if finding.present)
        reference = study.sections.findings if study.sections else study.caption
        heading = " · ".join(part for part in parts if part)
        run.append(EXAMPLES, Example(id=key, thumb=thumb, heading=heading, truth=truth, reference=reference))
