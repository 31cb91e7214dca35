"""Training samples read from corpora: an image, the indication and a report.

A study counts when it has a frontal image and the wanted text; a picture without a chest counts with its caption, in
colour. Studies that do not count are reported by reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cxrlab.core.errors import DataError, did_you_mean
from cxrlab.core.randomness import generator
from cxrlab.core.records import Study
from cxrlab.data.card import known_collections
from cxrlab.data.corpus import Corpus, inside, load_corpus
from cxrlab.data.views import selected_image
from cxrlab.findings.closed_questions import NO, YES, known_answers, question_about
from cxrlab.findings.finding_sentences import listed
from cxrlab.findings.reader import read
from cxrlab.training.config import ExtraCorpus
from cxrlab.training.image_cache import ImageFile

SPLIT = "train"
NO_SPLIT = "no split"
# Parts of a study that are not used and take long to read.
UNREAD = frozenset({"findings", "masks", "labels", "own_labels", "boxes", "absent_images"})
TRUTH = frozenset({"findings", "labels"})  # answers to closed questions; findings are also listed in prompts


@dataclass(frozen=True)
class Sample:
    """One training sample.

    Args:
        id: Of the study.
        image: None for text without an image.
        indication: Of the examination.
        report: The target; for a question, its answer.
        question: A closed question, in place of a request for a report.
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
    """The samples of one corpus.

    Args:
        name: From the corpus card.
        path: Corpus folder.
        samples: In the order of the corpus.
        weight: Passes through them per epoch.
        prompts: Row of the prompts table; None for that of the training.
        left_out: Reason → excluded studies of the train split, and studies in no split.
        collections: Collections that the corpus is made from.
        synthetic: Whether its card says that it has no patients.
    """

    name: str
    path: Path
    samples: tuple[Sample, ...]
    weight: float = 1.0
    prompts: str | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    collections: tuple[str, ...] = ()
    synthetic: bool = False


def read_source(corpus_config: ExtraCorpus, n: int | None = None, seed: int = 0, split: str = SPLIT) -> Source:
    """The samples of a corpus's train split, or of another; n of them drawn with the seed where n is given.

    Raises:
        DataError: When no study can be used, with the reasons; when a patient of the split is also in another one.
    """
    corpus = load_corpus(corpus_config.data)
    left_out: Counter[str] = Counter()
    samples: list[Sample] = []
    authors: set[str] = set()
    own: set[str] = set()
    other: dict[str, str] = {}
    truth = corpus_config.questions or corpus_config.findings_in_prompt
    for study in corpus.studies(without=UNREAD - TRUTH if truth else UNREAD):
        if study.split is None:
            left_out[NO_SPLIT] += 1
        elif study.split != split:
            other[study.patient] = study.split
        else:
            own.add(study.patient)
            authors.update(study.structured)
            found = (_questions if corpus_config.questions else _report)(corpus, study, corpus_config, seed)
            if isinstance(found, str):
                left_out[found] += 1
            else:
                samples += found
    if leaking := sorted(own & other.keys()):
        raise DataError(
            f"{corpus.path}: {len(leaking)} patients of the {split} split are in another one too (for example "
            f"'{leaking[0]}', also in {other[leaking[0]]}); keep each patient in one split."
        )
    if not samples:
        left_out.pop(NO_SPLIT, None)
        if not left_out:
            raise corpus.no_study_error(split)
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in left_out.most_common())
        hint = ""
        if (text := corpus_config.text) is not None and text not in authors:
            hint = f"{did_you_mean(text, authors)} Texts were made by: {', '.join(sorted(authors)) or 'nobody'}."
        raise DataError(
            f"none of the {left_out.total():,} {split} studies of {corpus.path} can be learnt from ({reasons}); a study "
            f"needs a frontal image and a findings text.{hint}"
        )
    if n is not None and n < len(samples):
        drawn = sorted(generator(seed, "samples").permutation(len(samples))[:n].tolist())
        samples = [samples[number] for number in drawn]
    return Source(
        corpus.card.name,
        corpus.path,
        tuple(samples),
        corpus_config.weight,
        corpus_config.prompts,
        left_out,
        known_collections(corpus.card),
        corpus.card.synthetic,
    )


def _report(corpus: Corpus, study: Study, config: ExtraCorpus, seed: int) -> tuple[Sample, ...] | str:
    """The report sample of a study, or why it is excluded."""
    if study.caption is not None:
        text: str | None = study.caption
    elif config.text is None:
        text = study.sections.findings if study.sections else None
    else:
        text = study.structured.get(config.text, {}).get("findings")
    text = text.strip() if text else None
    if not text:
        return "no text" if config.text is None else f"no findings by '{config.text}'"
    indication = study.sections.indication if study.sections else None
    if config.findings_in_prompt and study.caption is not None:
        return "a picture's caption, which has no findings"
    if config.images:
        image = find_image_file(corpus, study)
        return image if isinstance(image, str) else (Sample(study.id, image, indication, text),)
    listed_findings = None
    if config.findings_in_prompt:  # the exact findings, or those read from the text, in an order that is drawn
        findings = read(text) if study.findings is None else study.findings
        order = generator(seed, "told", study.id).permutation(len(findings))
        listed_findings = listed(findings[number] for number in order)
    return (Sample(study.id, None, indication, text, listed_findings=listed_findings),)


def _questions(corpus: Corpus, study: Study, config: ExtraCorpus, seed: int) -> tuple[Sample, ...] | str:
    """A question that is answered by yes and one by no, drawn with the seed; fewer where fewer answers are known."""
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
            question = question_about(names[int(rng.integers(len(names)))])
            found.append(Sample(study.id, image, None, words, question))
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
