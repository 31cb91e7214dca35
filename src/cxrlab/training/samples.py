"""What is learnt, read from corpora: an image, the reason for the examination, and a report.

A study counts when it has a frontal image and the wanted text. A picture without a chest counts with
its caption, in colour. What does not count is told by reason, so that an empty training explains itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cxrlab.core.errors import DataError, did_you_mean
from cxrlab.core.randomness import generator
from cxrlab.core.records import Study
from cxrlab.data.card import known_collections
from cxrlab.data.corpus import Corpus, inside, load_corpus
from cxrlab.data.views import selected_image
from cxrlab.findings.excerpts import listed
from cxrlab.findings.questions import NO, YES, known_answers, question_about
from cxrlab.findings.reader import read
from cxrlab.training.config import ExtraCorpus
from cxrlab.training.images import ImageFile

SPLIT = "train"
NO_SPLIT = "no split"
# What a study says beyond film and text; nothing is learnt from it, and it is most of what there is to read.
UNREAD = frozenset({"findings", "masks", "labels", "own_labels", "boxes", "absent_images"})
TRUTH = frozenset({"findings", "labels"})  # what closed questions are answered from; findings are also told


@dataclass(frozen=True)
class Sample:
    """One thing to learn.

    Args:
        id: Of the study.
        image: None where words alone are learnt.
        indication: Reason for the examination.
        report: What should be written; for a question, its answer.
        question: A closed question, in place of asking for a report.
        listed_findings: The findings as a list of terms, in place of the image.
    """

    id: str
    image: ImageFile | None
    indication: str | None
    report: str
    question: str | None = None
    listed_findings: str | None = None


@dataclass(frozen=True)
class Source:
    """What one corpus gives.

    Args:
        name: The corpus, as its card names it.
        path: Its folder.
        samples: In the order of the corpus.
        weight: Passes through them an epoch.
        prompts: Row of the prompts' table for them; None for that of the training.
        left_out: Reason → studies of the train split that do not count, and studies that are in no split.
        collections: Collections whose images or words are learnt.
        synthetic: Whether its card says that no patient is behind it.
    """

    name: str
    path: Path
    samples: tuple[Sample, ...]
    weight: float = 1.0
    prompts: str | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    collections: tuple[str, ...] = ()
    synthetic: bool = False


def read_source(also: ExtraCorpus, n: int | None = None, seed: int = 0) -> Source:
    """The samples of a corpus's train split.

    Args:
        also: Which corpus, which text, with images or without.
        n: Number of samples drawn; all when None.
        seed: Decides which are drawn.

    Raises:
        DataError: When nothing counts, with the reasons; when a patient of the train split is in another one too.
    """
    corpus = load_corpus(also.data)
    left_out: Counter[str] = Counter()
    samples: list[Sample] = []
    makers: set[str] = set()
    for study in _learnt(corpus, left_out, truth=also.questions or also.findings_in_prompt):
        makers.update(study.structured)
        found = _questions(corpus, study, seed) if also.questions else _sample(corpus, study, also, seed)
        if isinstance(found, str):
            left_out[found] += 1
        else:
            samples += found
    if not samples:
        raise DataError(_nothing(corpus, also, left_out, makers))
    if n is not None and n < len(samples):
        drawn = sorted(generator(seed, "samples").permutation(len(samples))[:n].tolist())
        samples = [samples[number] for number in drawn]
    return Source(
        corpus.card.name,
        corpus.path,
        tuple(samples),
        also.weight,
        also.prompts,
        left_out,
        known_collections(corpus.card),
        corpus.card.synthetic,
    )


def _learnt(corpus: Corpus, left_out: Counter[str], truth: bool) -> Iterator[Study]:
    """Studies of the train split; a patient who is in another one too is an error, found at the end.

    Studies that are in no split are counted as left out: nobody said that they are not to be learnt from.
    """
    train: set[str] = set()
    other: dict[str, str] = {}
    for study in corpus.studies(without=UNREAD - TRUTH if truth else UNREAD):
        if study.split == SPLIT:
            train.add(study.patient)
            yield study
        elif study.split is None:
            left_out[NO_SPLIT] += 1
        else:
            other[study.patient] = study.split
    if leaking := sorted(train & other.keys()):
        raise DataError(
            f"{corpus.path}: {len(leaking)} patients of the train split are in another one too (for example "
            f"'{leaking[0]}', also in {other[leaking[0]]}); keep each patient in one split."
        )


def _sample(corpus: Corpus, study: Study, also: ExtraCorpus, seed: int) -> tuple[Sample, ...] | str:
    """The sample of a study, or why it is left out."""
    text = _text(study, also.text)
    if text is None:
        return "no text" if also.text is None else f"no findings by '{also.text}'"
    indication = study.sections.indication if study.sections else None
    if also.findings_in_prompt and study.caption is not None:
        return "a picture's caption, of which nothing can be told"
    if not also.images:
        return (
            Sample(
                study.id,
                None,
                indication,
                text,
                listed_findings=_told(study, text, seed) if also.findings_in_prompt else None,
            ),
        )
    image = find_image_file(corpus, study)
    return image if isinstance(image, str) else (Sample(study.id, image, indication, text),)


def _told(study: Study, text: str, seed: int) -> str:
    """What is present, in an order drawn with the seed: an image has none. Read from the text where no truth is known."""
    findings = read(text) if study.findings is None else study.findings
    order = generator(seed, "told", study.id).permutation(len(findings))
    return listed(findings[number] for number in order)


def _questions(corpus: Corpus, study: Study, seed: int) -> tuple[Sample, ...] | str:
    """A question that is answered by yes and one by no, drawn with the seed; fewer where the study knows fewer."""
    answers = known_answers(study)
    if not answers:
        return "no answer known"
    image = find_image_file(corpus, study)
    if isinstance(image, str):
        return image
    rng = generator(seed, "questions", study.id)
    found = []
    for verdict, words in ((True, YES), (False, NO)):
        if names := [name for name, value in answers.items() if value is verdict]:
            asked = question_about(names[int(rng.integers(len(names)))])
            found.append(Sample(study.id, image, None, words, asked))
    return tuple(found)


def find_image_file(corpus: Corpus, study: Study) -> ImageFile | str:
    """The image of a study, or why there is none."""
    if not study.images:
        return "no image"
    try:
        number, colour = selected_image(study)
    except DataError:
        unknown = any(image.view is None for image in study.images)
        return "no frontal image, and an image whose view is unknown" if unknown else "no frontal image"
    return ImageFile(inside(corpus.path, study.images[number].path), rgb=colour)


def _text(study: Study, maker: str | None) -> str | None:
    """The findings by this maker (the source when None), or a caption; None when there are no words."""
    if study.caption is not None:
        text: str | None = study.caption
    elif maker is None:
        text = study.sections.findings if study.sections else None
    else:
        text = study.structured.get(maker, {}).get("findings")
    return text.strip() if text and text.strip() else None


def _nothing(corpus: Corpus, also: ExtraCorpus, left_out: Counter[str], makers: set[str]) -> str:
    """The sentence for a corpus without any sample."""
    left_out.pop(NO_SPLIT, None)
    if not left_out:
        return str(corpus.no_study_error("train"))
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in left_out.most_common())
    hint = ""
    if also.text is not None and also.text not in makers:
        hint = f"{did_you_mean(also.text, makers)} Texts were made by: {', '.join(sorted(makers)) or 'nobody'}."
    return (
        f"none of the {left_out.total():,} train studies of {corpus.path} can be learnt from ({reasons}); a study "
        f"needs a frontal image and a findings text.{hint}"
    )
