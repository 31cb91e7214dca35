"""Training samples read from corpora: images, the indication and a report.

A sample is one image-text pair. In a composed corpus every image that the composition kept is paired with every text
that it chose; elsewhere a study gives one frontal image and the source's findings, unless settings name other views and
texts. Fine-tuning may put several images of a study, and its prior, into one sample. A picture without a chest counts
with its caption, in colour. What does not count is listed by corpus and reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cxrlab.core.errors import ConfigError, DataError, did_you_mean
from cxrlab.core.model_interfaces import StudyContext
from cxrlab.core.randomness import generator
from cxrlab.core.records import Study
from cxrlab.data.card import known_collections
from cxrlab.data.config import TEXTS, ContextConfig
from cxrlab.data.corpus import Corpus, inside, load_corpus
from cxrlab.data.pairs import FINDINGS, MEMBER, SECTION_KEY, TEXTS_KEY, PairText, is_composed, pair_texts, view_name
from cxrlab.data.study_context import SelectedContext, select_context
from cxrlab.data.views import SelectedImage, in_colour, selected_image
from cxrlab.findings.closed_questions import NO, YES, known_answers, question_about
from cxrlab.findings.finding_sentences import listed
from cxrlab.findings.reader import read
from cxrlab.training.config import AlignConfig, EncoderConfig, ExtraCorpus, FinetuneConfig, parse_extra_corpora
from cxrlab.training.image_cache import ImageFile

SPLIT = "train"
NO_SPLIT, ANOTHER_IMAGE = "no split", "another image of its study is used"
QUESTIONS, NO_IMAGE, MADE_BY = "questions", "no image", "structured:"
# Parts of a study that are not used and take long to read.
UNREAD = frozenset({"findings", "masks", "labels", "own_labels", "boxes", "absent_images"})
TRUTH = frozenset({"findings", "labels"})  # answers to closed questions; findings are also listed in prompts


class PairKind(NamedTuple):
    """What pairs are counted by: corpus (of a composition, its member), source of the text, and view."""

    corpus: str
    text: str
    view: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One training sample.

    Args:
        id: Of the study.
        images: None for text without an image; several where settings name several views, or the prior.
        indication: Of the examination.
        report: The target; for a question, its answer.
        question: A closed question, in place of a request for a report.
        listed_findings: The findings as a list of terms, in place of the image.
        kind: What the pair is counted by.
        context: What the prompt states of several images and of the prior, with the indication; None for one image.
    """

    id: str
    images: tuple[ImageFile, ...]
    indication: str | None
    report: str
    question: str | None = None
    listed_findings: str | None = None
    kind: PairKind = PairKind("", "", "")
    context: StudyContext | None = None


@dataclass(frozen=True)
class Unused:
    """Studies and images that are not trained on; `studies` is 0 where others of their images are."""

    corpus: str
    reason: str
    studies: int
    images: int


@dataclass(frozen=True)
class Source:
    """The samples of one corpus.

    Args:
        name: From the corpus card.
        path: Corpus folder.
        samples: In the order of the corpus.
        weight: Passes through them per epoch.
        prompts: Row of the prompts table; None for that of the training.
        unused: What is not trained on of the train split, and studies in no split.
        collections: Collections that the corpus is made from.
        synthetic: Whether its card says that it has no patients.
    """

    name: str
    path: Path
    samples: tuple[Sample, ...]
    weight: float = 1.0
    prompts: str | None = None
    unused: tuple[Unused, ...] = ()
    collections: tuple[str, ...] = ()
    synthetic: bool = False

    @property
    def left_out(self) -> dict[str, int]:
        """Reason → excluded studies."""
        found: Counter[str] = Counter()
        for one in self.unused:
            found[one.reason] += one.studies
        return dict(+found)


@dataclass(frozen=True)
class PairCount:
    """A row of a table of pairs."""

    corpus: str
    text: str
    view: str
    pairs: int


@dataclass(frozen=True)
class PairTable:
    """What a training learns from: pairs by corpus, source of the text and view, and what is left out by reason."""

    pairs: int
    studies: int
    images: int
    rows: tuple[PairCount, ...]
    unused: tuple[Unused, ...]


def pair_table(sources: Iterable[Source]) -> PairTable:
    """Count the samples of a training."""
    kinds: Counter[PairKind] = Counter()
    studies: set[tuple[Path, str]] = set()
    images: set[ImageFile] = set()
    unused: list[Unused] = []
    for source in sources:
        kinds.update(sample.kind for sample in source.samples)
        studies.update((source.path, sample.id) for sample in source.samples)
        images.update(image for sample in source.samples for image in sample.images)
        unused += source.unused
    rows = tuple(PairCount(*kind, count) for kind, count in sorted(kinds.items()))
    return PairTable(kinds.total(), len(studies), len(images), rows, tuple(unused))


def read_sources(config: EncoderConfig | AlignConfig | FinetuneConfig) -> list[Source]:
    """The main corpus of a training and the further ones."""
    main = ExtraCorpus(config.data, text=config.text, views=pair_views(config), members=config.members)
    seed, context = config.optimisation.seed, context_of(config)
    further = parse_extra_corpora(config.extra_corpora).values()
    return [
        read_source(main, config.n, seed, context=context),
        *(read_source(one, seed=seed, context=ContextConfig() if one.views else context) for one in further),
    ]


def context_of(config: EncoderConfig | AlignConfig | FinetuneConfig) -> ContextConfig:
    """What a sample holds of a study: one image, but for fine-tuning on several views or on the prior."""
    if isinstance(config, FinetuneConfig) and config.unit != "image":
        return config.context
    return ContextConfig()


def pair_views(config: EncoderConfig | AlignConfig | FinetuneConfig) -> tuple[Any, ...]:
    """The views whose images are samples of their own; `frontal` in fine-tuning is the frontal image of each study."""
    together = isinstance(config, FinetuneConfig) and config.unit != "image"
    return () if together and config.views == ("frontal",) else config.views


def read_source(
    corpus_config: ExtraCorpus,
    n: int | None = None,
    seed: int = 0,
    split: str = SPLIT,
    context: ContextConfig | None = None,
) -> Source:
    """The samples of a corpus's train split, or of another; of n studies drawn with the seed where n is given.

    A `context` of several images or of a prior goes into every sample with an image, except closed questions.

    Raises:
        DataError: When no study can be used, with the reasons; when a patient of the split is also in another one.
    """
    corpus = load_corpus(corpus_config.data)
    tally = _Tally()
    studies: list[tuple[int, tuple[Sample, ...]]] = []  # images and samples of each
    makers: set[str] = set()
    members: set[str] = set()
    own: set[str] = set()
    other: dict[str, str] = {}
    truth = corpus_config.questions or corpus_config.findings_in_prompt
    for study in corpus.studies(without=UNREAD - TRUTH if truth else UNREAD):
        member = str(study.extra.get(MEMBER, corpus.card.name))
        if study.split is None:
            tally.add(member, NO_SPLIT, studies=1, images=len(study.images))
        elif study.split != split:
            other[study.patient] = study.split
        else:
            own.add(study.patient)
            makers.update(study.structured)
            members.add(member)
            found: _Pairs | str = "not among members"
            if not corpus_config.members or member in corpus_config.members:
                if corpus_config.questions:
                    found = _questions(corpus, study, corpus_config, seed, member)
                else:
                    found = _reports(corpus, study, corpus_config, seed, member, context or ContextConfig())
            if isinstance(found, str):
                tally.add(member, found, studies=1, images=len(study.images))
            else:
                studies.append((len(study.images), found.samples))
                tally.add(member, found.why_unused, images=found.unused)
    if leaking := sorted(own & other.keys()):
        raise DataError(
            f"{corpus.path}: {len(leaking)} patients of the {split} split are in another one too (for example "
            f"'{leaking[0]}', also in {other[leaking[0]]}); keep each patient in one split."
        )
    if unknown := sorted(set(corpus_config.members) - members):
        raise ConfigError(
            f"members has '{unknown[0]}', of which the {split} split of {corpus.path} has no study."
            f"{did_you_mean(unknown[0], members)} Members: {', '.join(sorted(members))}."
        )
    if not studies:
        raise _nothing_to_learn(corpus, split, tally, corpus_config.text, makers)
    if n is not None and n < len(studies):
        drawn = set(generator(seed, "samples").permutation(len(studies))[:n].tolist())
        for number, (images, samples) in enumerate(studies):
            if number not in drawn:
                tally.add(samples[0].kind.corpus, f"not among the {n:,} studies drawn", studies=1, images=images)
        studies = [studies[number] for number in sorted(drawn)]
    return Source(
        corpus.card.name,
        corpus.path,
        tuple(sample for _, samples in studies for sample in samples),
        corpus_config.weight,
        corpus_config.prompts,
        tally.rows(),
        known_collections(corpus.card),
        corpus.card.synthetic,
    )


class _Tally:
    """Counts of studies and images that are not trained on, by corpus and reason."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], tuple[int, int]] = {}

    def add(self, corpus: str, reason: str, *, studies: int = 0, images: int = 0) -> None:
        if studies or images:
            before = self.counts.get((corpus, reason), (0, 0))
            self.counts[corpus, reason] = before[0] + studies, before[1] + images

    def rows(self) -> tuple[Unused, ...]:
        return tuple(Unused(*key, *counts) for key, counts in self.counts.items())


def _nothing_to_learn(corpus: Corpus, split: str, tally: _Tally, text: str | None, makers: set[str]) -> DataError:
    """The reasons why no study of a split can be used, with the makers of texts where another one was asked for."""
    left_out = Counter(Source("", corpus.path, (), unused=tally.rows()).left_out)
    left_out.pop(NO_SPLIT, None)
    if not left_out:
        return corpus.no_study_error(split)
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in left_out.most_common())
    wanted = [name.removeprefix(MADE_BY) for name in _choices(text or "") if name not in TEXTS]
    hint = ""
    if unknown := [name for name in wanted if name not in makers]:
        hint = f"{did_you_mean(unknown[0], makers)} Texts available: {', '.join(sorted(makers)) or 'none'}."
    return DataError(
        f"none of the {left_out.total():,} {split} studies of {corpus.path} can be used for training ({reasons}); a study needs "
        f"an image of the wanted view (by default a frontal one) and the wanted text (by default findings).{hint}"
    )


class _Pairs(NamedTuple):
    """The samples of a study, and how many of its images are not among them, with the reason."""

    samples: tuple[Sample, ...]
    unused: int = 0
    why_unused: str = ""


def _reports(
    corpus: Corpus, study: Study, config: ExtraCorpus, seed: int, member: str, context: ContextConfig
) -> _Pairs | str:
    """The report samples of a study, or why it is excluded."""
    texts = _texts(study, config.text)
    if isinstance(texts, str):
        return texts
    if config.findings_in_prompt and study.caption is not None:
        return "a picture's caption, which has no findings"
    if not config.images:
        samples = []
        for one in texts:
            listed_findings = None
            if config.findings_in_prompt:  # the exact findings, or those read from the text, in an order that is drawn
                findings = read(one.text) if study.findings is None else study.findings
                order = generator(seed, "told", study.id).permutation(len(findings))
                listed_findings = listed(findings[number] for number in order)
            kind = PairKind(member, one.source, NO_IMAGE)
            given = _indication(study, one.source)
            samples.append(Sample(study.id, (), given, one.text, listed_findings=listed_findings, kind=kind))
        return _Pairs(tuple(samples))
    if study.caption is None and not context.is_single:
        selected = select_context(corpus, study, context)
        if isinstance(selected, str):
            return selected
        files = context_files(corpus, selected)
        together = []
        for one in texts:
            given, kind = _indication(study, one.source), PairKind(member, one.source, selected.kind)
            together.append(Sample(study.id, files, given, one.text, kind=kind, context=selected.described(given)))
        own = sum(image.study is study for image in selected.images)
        return _Pairs(tuple(together), len(study.images) - own, "view not among those of a sample")
    numbers = _image_numbers(study, config.views)
    if isinstance(numbers, str):
        return numbers
    pairs = [
        Sample(
            study.id,
            (ImageFile(inside(corpus.path, study.images[number].path), rgb=in_colour(study)),),
            _indication(study, text.source),
            text.text,
            kind=PairKind(member, text.source, view_name(study.images[number])),
        )
        for number in numbers
        for text in texts
    ]
    why = f"view not among {', '.join(config.views)}" if config.views else ANOTHER_IMAGE
    return _Pairs(tuple(pairs), len(study.images) - len(numbers), why)


def _texts(study: Study, wanted: str | None) -> list[PairText] | str:
    """The texts to learn of a study, or why there is none."""
    if wanted is not None:
        choices = _choices(wanted)
    else:
        choices = list(study.extra[TEXTS_KEY]) if is_composed(study) else ["sections"]
    found = pair_texts(study, choices, study.extra.get(SECTION_KEY, FINDINGS) if is_composed(study) else FINDINGS)
    return found or ("no text" if wanted is None else f"no text '{wanted}'")


def _choices(text: str) -> list[str]:
    """The setting `text` as choices of `pair_texts`: what is no kind of text is the name of a maker."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    return [name if name in TEXTS or name.startswith(MADE_BY) else f"{MADE_BY}{name}" for name in names]


def _indication(study: Study, source: str) -> str | None:
    """The indication that was made with a structured text; the source's where there is none, and for other texts."""
    own = (
        study.structured.get(source.removeprefix(MADE_BY), {}).get("indication") if source.startswith(MADE_BY) else None
    )
    return own or (study.sections.indication if study.sections else None)


def _image_numbers(study: Study, views: Sequence[str]) -> list[int] | str:
    """The numbers of the images to learn of a study, or why there is none."""
    if not study.images:
        return "no image"
    if is_composed(study) or (views and study.caption is None):
        kept = [number for number, image in enumerate(study.images) if not views or view_name(image) in views]
        return kept or f"view not among {', '.join(views)}"
    selected = _selected(study)
    return selected if isinstance(selected, str) else [selected.number]


def _selected(study: Study) -> SelectedImage | str:
    """The one image of a study that is used by default, or why there is none."""
    if not study.images:
        return "no image"
    try:
        return selected_image(study)
    except DataError:
        unknown = any(image.view is None for image in study.images)
        return "no frontal image, and an image whose view is unknown" if unknown else "no frontal image"


def _questions(corpus: Corpus, study: Study, config: ExtraCorpus, seed: int, member: str) -> _Pairs | str:
    """A question that is answered by yes and one by no, drawn with the seed; fewer where fewer answers are known."""
    answers = known_answers(study)
    if not answers:
        return "no answer known"
    selected = _selected(study)
    if isinstance(selected, str):
        return selected
    images = (ImageFile(inside(corpus.path, study.images[selected.number].path), rgb=selected.colour),)
    kind = PairKind(member, QUESTIONS, view_name(study.images[selected.number]))
    rng = generator(seed, "questions", study.id)
    found = []
    for verdict, words in ((True, YES), (False, NO)):
        if names := [name for name, value in answers.items() if value is verdict]:
            question = question_about(names[int(rng.integers(len(names)))])
            found.append(Sample(study.id, images, None, words, question, kind=kind))
    return _Pairs(tuple(found), len(study.images) - 1, ANOTHER_IMAGE)


def context_files(corpus: Corpus, selected: SelectedContext) -> tuple[ImageFile, ...]:
    """The image files of a context, in its order."""
    return tuple(ImageFile(inside(corpus.path, one.study.images[one.number].path)) for one in selected.images)


class StudyInputs(NamedTuple):
    """What a sample holds of a study beside its report."""

    images: tuple[ImageFile, ...]
    indication: str | None
    context: StudyContext | None


def find_inputs(corpus: Corpus, study: Study, context: ContextConfig) -> StudyInputs | str:
    """The inputs of a study, or why it is left out."""
    indication = study.sections.indication if study.sections else None
    if context.is_single or study.caption is not None:
        image = find_image_file(corpus, study)
        return image if isinstance(image, str) else StudyInputs((image,), indication, None)
    selected = select_context(corpus, study, context)
    if isinstance(selected, str):
        return selected
    return StudyInputs(context_files(corpus, selected), indication, selected.described(indication))


def find_image_file(corpus: Corpus, study: Study) -> ImageFile | str:
    """The image of a study that is used by default, or why there is none."""
    selected = _selected(study)
    if isinstance(selected, str):
        return selected
    return ImageFile(inside(corpus.path, study.images[selected.number].path), rgb=selected.colour)
