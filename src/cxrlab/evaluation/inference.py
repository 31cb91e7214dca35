"""Images through a model, in batches of prompts of like length, into a file in the order of the corpus.

A window of a few batches is sorted by the length of its prompts, so that little is padded; its predictions are
appended when the whole window is answered. Batches depend on the ids alone, never on what was done before: a run
that was stopped answers the rest in the same company and ends with the same bytes. A model whose answers may cost
money is asked nothing twice: its windows are single batches, of which only what is not on file is asked. Where a
batch does not fit in memory, the window is planned again with batches of half the size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import ConfigError, DataError, short_repr
from cxrlab.core.memory import BatchSize
from cxrlab.core.records import Prediction
from cxrlab.core.runs import Run
from cxrlab.core.terminal import track
from cxrlab.data.corpus import Corpus
from cxrlab.data.views import load_selected_image
from cxrlab.models.decoding import Decoding, SupportsDecoding

if TYPE_CHECKING:
    from cxrlab.core.protocols import Generated, Image, ImageToText

WINDOW = 8  # batches
ANSWERS = "answers"  # key of a prediction that holds every answer where several were asked for


@dataclass(frozen=True)
class MissingReport:
    """A study without a prediction, the sentence that says why, and whether the model refused to write one."""

    id: str
    reason: str
    refused: bool = False


class Images:
    """What a model is shown for each study: its frontal image (of a caption the picture) and the indication.

    Args:
        corpus: Where the studies are.
        indications: False keeps the reasons back.
    """

    def __init__(self, corpus: Corpus, *, indications: bool = True) -> None:
        self.corpus, self.indications = corpus, indications

    def indication(self, key: str) -> str | None:
        """Reason for the examination; None when there is none, or when it is kept back."""
        if not self.indications:
            return None
        study = self.corpus[key]
        return study.sections.indication if study.sections else None

    def image(self, key: str) -> Image:
        """[H, W] or [H, W, 3] in [0, 1]; a `DataError` when there is no readable frontal image or picture."""
        return load_selected_image(self.corpus, self.corpus[key])


class ReportGenerator:
    """A model with the way in which it chooses its words.

    Args:
        model: The model.
        decoding: A `ConfigError` where the model has no choice and this is not the default.
    """

    def __init__(self, model: ImageToText, decoding: Decoding) -> None:
        if not isinstance(model, SupportsDecoding) and decoding != Decoding():
            raise ConfigError(f"'{model.name}' cannot be told how to choose its words; leave out the --decoding flags.")
        self.model = model
        self.decoding = decoding

    def generate(self, images: Sequence[Image], indications: Sequence[str | None]) -> list[list[Generated]]:
        """Answers for each image, best first."""
        if not images:
            return []
        if isinstance(self.model, SupportsDecoding):
            return self.model.answers(images, indications, self.decoding)
        return [[answer] for answer in self.model.generate(images, indications)]


def try_longest_indication(writer: ReportGenerator, images: Images, ids: Sequence[str]) -> None:
    """Answer the study with the longest indication once and forget the answer, so that what fails fails at the door.

    A prompt that does not fit the model, weights that give no numbers, too little memory for a single image: none of
    them should be found after hours. A model whose answers may cost money is not tried.
    """
    if writer.model.capabilities.black_box:
        return
    longest = max(ids, key=lambda key: len(images.indication(key) or ""))
    try:
        image = images.image(longest)
    except DataError:
        return  # it will be listed among the missing
    BatchSize(1).map([image], lambda alone: writer.generate(alone, [images.indication(longest)]))


def generate_predictions(
    run: Run, file: str, writer: ReportGenerator, images: Images, ids: Sequence[str], batch_size: BatchSize, label: str
) -> tuple[MissingReport, ...]:
    """Append a prediction for every study that has none yet; returns those that get none.

    Those are studies whose image cannot be read, and those for which the model refuses to write: what it says instead
    is no report and must not be scored as one. Asked again later, they may get theirs.

    Args:
        run: The open run.
        file: Name of the predictions in it.
        writer: What answers.
        images: What it is shown.
        ids: Studies, in the order of the file.
        batch_size: Images at once.
        label: What the progress says.
    """
    missing: dict[str, MissingReport] = {}

    def answer(size: int) -> None:
        _answer(run, file, writer, images, ids, size, label, missing)

    if writer.model.capabilities.black_box:
        answer(batch_size.current)  # a second try would ask again what may have cost money
    else:
        batch_size.retry(answer, len(ids))
    return tuple(missing[key] for key in ids if key in missing)


def _answer(
    run: Run, file: str, writer: ReportGenerator, images: Images, ids: Sequence[str], size: int, label: str,
    missing: dict[str, MissingReport],
) -> None:  # fmt: skip
    """See `generate_predictions`; `missing` is filled, and what it holds already is not asked again."""
    done = run.done(file) | missing.keys()
    ready: dict[str, Prediction] = {}
    costly = writer.model.capabilities.black_box
    plan = _plan(ids, size, images.indication, 1 if costly else WINDOW)
    for batch, window in track(plan, label, total=len(ids), size=lambda planned: len(planned[0])):
        keys, all_images, indications = [], [], []
        # A batch that was begun is answered whole again: another grouping may change the last bit of a number.
        asked = () if done.issuperset(batch) else batch
        for key in (key for key in asked if not (costly and key in done)):
            try:
                all_images.append(images.image(key))
            except DataError as error:
                missing[key] = MissingReport(key, str(error))
                continue
            keys.append(key)
            indications.append(images.indication(key))
        for key, answers in zip(keys, writer.generate(all_images, indications), strict=True):
            if key in done:
                continue
            reports = [answer for answer in answers if not answer.refused]
            if reports:
                ready[key] = make_prediction(key, reports)
            else:
                missing[key] = MissingReport(key, describe_refusal(key, answers), refused=True)
        for key in window:
            if key in ready:
                run.append(file, ready.pop(key))


def describe_refusal(key: str, answers: Sequence[Generated]) -> str:
    """The sentence on a study for which the model refused to write; what it said is cut short."""
    said = short_repr(answers[0].text.strip()) if answers else "nothing"
    return f"the model refused to write on study '{key}': {said}."


def _plan(
    ids: Sequence[str], size: int, indication: Callable[[str], str | None], batches: int
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """All batches; with the last of a window the window, ready to write."""
    for start in range(0, len(ids), size * batches):
        window = ids[start : start + size * batches]
        alone = len(window) <= size
        order = window if alone else sorted(window, key=lambda key: len(indication(key) or ""))
        for first in range(0, len(order), size):
            batch = order[first : first + size]
            yield batch, window if first + size >= len(order) else ()


def make_prediction(key: str, answers: Sequence[Generated]) -> Prediction:
    """The best answer as the prediction of a study; where there are several, all of them stand under `answers`."""
    best = answers[0]
    extra = dict(best.extra)
    if len(answers) > 1:
        extra[ANSWERS] = [{"report": one.text, "confidence": _confidence(one), **one.extra} for one in answers]
    return Prediction(key, best.text, confidence=_confidence(best), extra=extra)


def _confidence(answer: Generated) -> dict[str, Any]:
    told = {"mean_logprob": answer.mean_logprob, "tokens": answer.tokens}
    return {name: value for name, value in told.items() if value is not None}
