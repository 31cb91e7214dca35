"""`cxrlab retrieve`: image–report retrieval and zero-shot classification with a contrastive encoder."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.config import parse_group, raise_problems, read_yaml
from cxrlab.core.egress import connection_operational_fields
from cxrlab.core.errors import ConfigError, DataError, UnknownName, did_you_mean
from cxrlab.core.files import read_json
from cxrlab.core.json_values import nan_if_none
from cxrlab.core.randomness import generator
from cxrlab.core.records import Study
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.core.vocabulary import CHEXPERT_14, OBSERVATIONS
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.views import load_selected_image
from cxrlab.evaluation.config import RetrieveConfig
from cxrlab.findings.finding_sentences import present_sentences
from cxrlab.metrics.classification import Auroc, auroc_interval
from cxrlab.metrics.retrieval import UNKNOWN, chance, first_match_rank, fixed_order, match_counts, recall
from cxrlab.metrics.statistics.intervals import Resamples
from cxrlab.models.model_registry import load_encoder

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Embedder, Image

RETRIEVAL, RANKS, ZERO_SHOT, MARGINS = "retrieval.json", "ranks.jsonl", "zero_shot.json", "zero_shot.jsonl"
# Settings that may change when a run is continued.
OPERATIONAL = ("batch_size", "allow_missing", "loading.device", *connection_operational_fields("loading.connection"))
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Recall:
    """Share of `n` queries with a right candidate among the first k, with its interval by patient."""

    value: float
    low: float
    high: float
    n: int
    chance: float  # recall of a random order
    fixed_order: float  # recall of the best order that is the same for every query, whatever the image


@dataclass(frozen=True)
class Retrieved:
    """The result of a retrieval."""

    model: str
    data: str
    split: str
    gallery: int  # candidates of each query: images, and as many reports
    distinct_texts: int  # different reports among them
    distinct_findings: int | None  # different exact finding sets; None where they are not known
    without_text: int  # studies left out because they have no text
    without_image: int  # studies left out because their image cannot be read
    # `image_to_text` and `text_to_image` → `text` (same words) and `findings` (same exact findings) → `recall@k` →
    # figures.
    recalls: Mapping[str, Mapping[str, Mapping[str, Recall]]]
    median_ranks: Mapping[str, Mapping[str, float]]  # likewise → median rank of the first right candidate
    zero_shot: ZeroShot | None = None  # None when zero-shot classification was left out


def retrieve(config: RetrieveConfig, out: Path) -> Retrieved:
    """Embed the images and reports of a split and rank all of one kind for each of the other.

    Writes RUN/retrieval.json, the rank of the first right candidate of every query to RUN/ranks.jsonl and, unless it
    is left out, zero-shot classification to RUN/zero_shot.json with the figures of every study in RUN/zero_shot.jsonl.
    A stopped run is continued, a finished one with the same settings is left as it is.
    """
    if finished(out, config, seed=config.seed, operational=OPERATIONAL):
        return read_retrieval(out)
    corpus = load_corpus(config.data)
    if config.zero_shot is not None:
        load_sentences(config.zero_shot)  # a wrong name raises before hours of embedding
    entries, without_text = _read_entries(corpus, config)
    encoder = load_encoder(config.model, config.loading)
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        vectors = embed_studies(run, encoder, corpus, entries, config.batch_size)
        read: NDArray[np.bool_] = np.asarray(~np.isnan(vectors[IMAGES]).all(axis=1))
        kept = [entry for entry, readable in zip(entries, read, strict=True) if readable]
        unread = [entry.id for entry, readable in zip(entries, read, strict=True) if not readable]
        if len(kept) < 2:
            raise DataError(
                f"{config.data}: hardly any study has a readable image (not '{unread[0]}'); check the corpus."
            )
        if unread and not config.allow_missing:
            raise DataError(
                f"{len(unread)} of {len(entries)} studies have no readable image (for example '{unread[0]}'); "
                "repair them, or give --allow-missing."
            )
        found = _search(run, config, kept, vectors[IMAGES][read], vectors[TEXTS][read])
        found = replace(found, without_text=without_text, without_image=len(unread))
        if config.zero_shot is not None:
            found = replace(found, zero_shot=_zero_shot(run, config, encoder, kept, vectors[IMAGES][read]))
        run.write(RETRIEVAL, {key: value for key, value in vars(found).items() if key != "zero_shot"})
    return found


def read_retrieval(out: Path) -> Retrieved:
    """The result of a finished run."""
    values = read_json(out / RETRIEVAL)
    recalls = {
        way: {kind: {name: Recall(**_read_numbers(one)) for name, one in by_k.items()} for kind, by_k in kinds.items()}
        for way, kinds in values.pop("recalls").items()
    }
    medians = {
        way: {kind: nan_if_none(place) for kind, place in kinds.items()}
        for way, kinds in values.pop("median_ranks").items()
    }
    classified = ZeroShot.from_json(read_json(out / ZERO_SHOT)) if (out / ZERO_SHOT).is_file() else None
    return Retrieved(**values, recalls=recalls, median_ranks=medians, zero_shot=classified)


def _read_numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: nan_if_none(value) if value is None else value for key, value in row.items()}


def _read_entries(corpus: Corpus, config: RetrieveConfig) -> tuple[list[Entry], int]:
    """The studies to embed, in corpus order, and how many have no text."""
    ids = corpus.ids(config.split)
    if not ids:
        raise corpus.no_study_error(config.split)
    chosen = set(ids)
    if config.n is not None and config.n < len(ids):
        chosen = {ids[index] for index in generator(config.seed, "retrieve").permutation(len(ids))[: config.n]}
    present = config.statements == "present"
    found = [read_entry(study, config.section, present) for study in corpus.studies(config.split) if study.id in chosen]
    entries = [entry for entry in found if entry is not None]
    if len(entries) < 2:
        raise DataError(
            f"{corpus.path}: of {len(found)} studies in the {config.split} split {len(entries)} have a text in "
            f"the section '{config.section}'; retrieval needs at least two. Choose another --section or split."
        )
    return entries, len(found) - len(entries)


def _search(run: Run, config: RetrieveConfig, entries: Sequence[Entry], images: Vectors, texts: Vectors) -> Retrieved:
    # Texts are the same when their words in lower case are.
    keys = {"text": _keys([" ".join(re.findall(r"\w+", entry.text.casefold())) for entry in entries])}
    exact = [entry.exact for entry in entries]
    if any(one is not None for one in exact):
        keys["findings"] = _keys(exact)
    resamples = Resamples(
        [entry.patient for entry in entries], trials=config.trials, rng=generator(config.seed, "resamples")
    )
    ways = {"image_to_text": (images, texts), "text_to_image": (texts, images)}
    places = {way: {kind: first_match_rank(a, k, b, k) for kind, k in keys.items()} for way, (a, b) in ways.items()}
    done = run.done(RANKS)
    for row, entry in enumerate(entries):
        if entry.id not in done:
            ranks = {way: {kind: int(p[row]) or None for kind, p in kinds.items()} for way, kinds in places.items()}
            run.append(RANKS, {"id": entry.id, "patient": entry.patient, **ranks})
    recalls: dict[str, dict[str, dict[str, Recall]]] = {way: {kind: {} for kind in keys} for way in ways}
    medians: dict[str, dict[str, float]] = {way: {} for way in ways}
    for way, kinds in places.items():
        for kind, found in kinds.items():
            medians[way][kind] = float(np.median(found[found > 0])) if (found > 0).any() else math.nan
            tallies = [recall(way, found, k) for k in config.ks]
            right = match_counts(keys[kind], keys[kind])
            for k, tally, end in zip(config.ks, tallies, resamples.estimates(tallies, config.level), strict=True):
                by_chance, fixed = chance(right, len(found), k), fixed_order(keys[kind], keys[kind], k)
                recalls[way][kind][f"recall@{k}"] = Recall(tally.value, end.low, end.high, tally.n, by_chance, fixed)
    return Retrieved(
        model=config.model,
        data=str(config.data),
        split=config.split,
        gallery=len(entries),
        distinct_texts=len(np.unique(keys["text"])),
        distinct_findings=len(set(exact) - {None}) or None,
        without_text=0,
        without_image=0,
        recalls=recalls,
        median_ranks=medians,
    )


def _zero_shot(
    run: Run, config: RetrieveConfig, encoder: Embedder, entries: Sequence[Entry], images: Vectors
) -> ZeroShot:
    """Classify, write the margins of every study and the areas, and return the latter."""
    wording = str(config.zero_shot)
    names = select_names(entries)
    columns = margins(images, names, load_sentences(wording), encoder.embed_texts)
    done = run.done(MARGINS)
    for entry, row in zip(entries, columns, strict=True):
        if entry.id not in done:
            of_study = {name: round(float(value), 6) for name, value in zip(names, row, strict=True)}
            run.append(MARGINS, {"id": entry.id, "patient": entry.patient, "margins": of_study})
    scores = {name: columns[:, place] for place, name in enumerate(names)}
    rng = generator(config.seed, "zero-shot")
    found = classify(entries, scores, wording, trials=config.trials, level=config.level, rng=rng)
    run.write(ZERO_SHOT, found)
    return found


def _keys(values: Sequence[str | None]) -> NDArray[np.int64]:
    """One number per value, equal for equal values; `UNKNOWN` for None."""
    numbers: dict[str, int] = {}
    return np.array([UNKNOWN if one is None else numbers.setdefault(one, len(numbers)) for one in values], np.int64)


# Studies per block: large enough that files are few, small enough that a stopped run loses little.
BLOCK = 512
IMAGES, TEXTS = "images", "texts"


@dataclass(frozen=True)
class Entry:
    """One study without its image."""

    id: str
    patient: str
    text: str  # the report, or the caption of a picture without a chest
    labels: Mapping[str, int]  # CheXpert labels
    present: frozenset[str] | None = None  # observations that are present; None where the exact findings are not known
    exact: str | None = None  # the exact findings as text, equal for equal findings; None where not known

    def label(self, name: str) -> bool | None:
        """Whether a label is positive; None when unknown or uncertain."""
        value = self.labels.get(name)
        return None if value is None or value < 0 else bool(value)


def read_entry(study: Study, section: str, present: bool = False) -> Entry | None:
    """The entry of a study; None when it has no text of this section and no caption.

    With `present`, only the sentences that state something present or possible are kept.
    """
    report = study.sections.section(section) if study.sections else None
    if report and report.strip() and present:
        report = present_sentences(report)
    text = (report or study.caption or "").strip()
    if not text:
        return None
    findings = study.findings
    exact = [  # everything that a finding states, without its place in the report
        " ".join(f"{key}={value}" for key, value in sorted(one.to_json().items()) if key != "span")
        for one in findings or ()
        if one.present
    ]
    return Entry(
        id=study.id,
        patient=study.patient,
        text=text,
        labels=study.labels,
        present=None if findings is None else frozenset(one.observation for one in findings if one.present),
        exact=None if findings is None else "; ".join(sorted(exact)),
    )


def embed_studies(
    run: Run, encoder: Embedder, corpus: Corpus, entries: Sequence[Entry], batch_size: int
) -> dict[str, NDArray[np.float32]]:
    """Vectors of images and texts, [N, D] each; an image that cannot be read has a row of not-a-number.

    Blocks that a stopped run has embedded are read. An encoder that gives something else than numbers for an image or
    text raises a `DataError` that names the study, and nothing of that block is kept.
    """
    blocks: dict[str, list[NDArray[np.float32]]] = {IMAGES: [], TEXTS: []}
    parts = [entries[start : start + BLOCK] for start in range(0, len(entries), BLOCK)]
    for number, block in enumerate(track(parts, "embedding studies", len(entries), size=len)):
        for kind in (TEXTS, IMAGES):
            path = run.path(f"vectors/{kind}_{number:06d}.npy")
            if not path.is_file():
                if kind == TEXTS:
                    vectors = encoder.embed_texts([entry.text for entry in block])
                    _check_finite(encoder, vectors, block, "text")
                else:
                    vectors = _embed_images(encoder, corpus, block, batch_size)
                content = io.BytesIO()
                np.save(content, vectors, allow_pickle=False)
                run.write(f"vectors/{path.name}", content.getvalue())
            try:
                found = np.load(str(path), allow_pickle=False)
            except (OSError, ValueError, EOFError) as error:
                raise DataError(f"{path} cannot be read ({error}); delete it and run again.") from None
            if found.ndim != 2 or len(found) != len(block):
                raise DataError(
                    f"{path} holds {found.shape} numbers where {len(block)} rows were expected; delete it and run "
                    "again."
                )
            blocks[kind].append(np.asarray(found, np.float32))
    return {kind: np.concatenate(found) for kind, found in blocks.items()}


def _embed_images(encoder: Embedder, corpus: Corpus, block: Sequence[Entry], batch_size: int) -> NDArray[np.float32]:
    rows: dict[int, NDArray[np.float32]] = {}
    places: list[int] = []
    images: list[Image] = []
    for place, entry in enumerate(block):
        try:
            images.append(load_selected_image(corpus, corpus[entry.id]))
            places.append(place)
        except DataError:
            pass  # reported with their number when all others are done
        if images and (len(images) == batch_size or place == len(block) - 1):
            vectors = encoder.embed_images(images)
            _check_finite(encoder, vectors, [block[place] for place in places], "image")
            rows |= dict(zip(places, vectors, strict=True))
            places, images = [], []
    width = len(next(iter(rows.values()))) if rows else encoder.embed_texts([""]).shape[1]
    missing = np.full(width, np.nan, np.float32)
    return np.stack([rows.get(place, missing) for place in range(len(block))])


def _check_finite(encoder: Embedder, vectors: NDArray[np.float32], entries: Sequence[Entry], what: str) -> None:
    for entry, vector in zip(entries, vectors, strict=True):
        if not np.isfinite(vector).all():
            raise DataError(
                f"'{encoder.name}' gives no numbers for the {what} of study '{entry.id}': its weights are broken, or "
                "the number format is too small for them (try --loading.dtype float32)."
            )


_PLACEHOLDER = "{name}"
_ARTICLE = re.compile(r"^an? ", re.IGNORECASE)


@dataclass(frozen=True)
class Sentences:
    """One row of `zero_shot.yaml`, whose comments describe the fields."""

    present: tuple[str, ...]
    absent: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for side in ("present", "absent"):
            if not getattr(self, side) or not all(_PLACEHOLDER in sentence for sentence in getattr(self, side)):
                raise ConfigError(f"'{side}' must be a list of sentences, each with {_PLACEHOLDER} in it.")
        for name in (*self.names, *self.own):
            if name not in CHEXPERT_14 and name not in OBSERVATIONS:
                raise ConfigError(
                    f"'{name}' is neither a CheXpert label nor an observation."
                    f"{did_you_mean(name, (*CHEXPERT_14, *OBSERVATIONS))}"
                )
        for name, own in self.own.items():
            if set(own) != {"present", "absent"} or not all(isinstance(one, list) and one for one in own.values()):
                raise ConfigError(f"the own sentences of '{name}' must be two lists, present and absent.")

    def of(self, name: str) -> tuple[list[str], list[str]]:
        """(sentences for present, sentences for absent) of a label or observation."""
        if name in self.own:
            return list(self.own[name]["present"]), list(self.own[name]["absent"])
        words = self.names.get(name, name.lower())
        bare = _ARTICLE.sub("", words)  # "a nodule" for present, "no nodule" for absent
        return [_fill(text, words) for text in self.present], [_fill(text, bare) for text in self.absent]


@dataclass(frozen=True)
class MeanAuroc:
    """Mean over the names that have an area, not-a-number without any; and their number."""

    value: float
    n: int


@dataclass(frozen=True)
class ZeroShot:
    """Areas under the ROC curve of CheXpert labels, and of observations where the exact findings are known.

    `sentences` is the name and version of the prompts.
    """

    sentences: str
    labels: Mapping[str, Auroc]
    observations: Mapping[str, Auroc]
    mean_labels: MeanAuroc
    mean_observations: MeanAuroc

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ZeroShot:
        """The content of zero_shot.json."""
        labels, observations = (
            {name: Auroc(**_read_numbers(row)) for name, row in found[part].items()}
            for part in ("labels", "observations")
        )
        means = (found["mean_labels"], found["mean_observations"])
        of_labels, of_observations = (MeanAuroc(nan_if_none(mean["value"]), mean["n"]) for mean in means)
        return cls(found["sentences"], labels, observations, of_labels, of_observations)


def load_sentences(name: str) -> Sentences:
    """The row of this name in the shipped table, or the only row of a YAML file of that form."""
    with as_file(files("cxrlab.evaluation") / "zero_shot.yaml") as path:
        shipped = read_yaml(path)[0]
    if name in shipped:
        return _checked_sentences(shipped[name], name)
    if not Path(name).is_file():
        raise UnknownName(
            f"there are no zero-shot sentences '{name}', nor a file of that name.{did_you_mean(name, shipped)} "
            f"Known: {', '.join(shipped)}."
        )
    rows = read_yaml(name)[0]
    if len(rows) != 1:
        raise ConfigError(f"{name} holds {len(rows)} rows; a file of zero-shot sentences must hold one.")
    return next(_checked_sentences(row, f"{name}, '{title}'") for title, row in rows.items())


def _checked_sentences(row: Any, place: str) -> Sentences:
    found, problems = parse_group(Sentences, row, place)
    raise_problems(problems)
    assert found is not None  # without problems there is one
    return found


def margins(
    images: NDArray[np.float32], names: Sequence[str], sentences: Sentences, embed: Callable[[Sequence[str]], Any]
) -> NDArray[np.float64]:
    """Cosine of each image [N, D] with presence minus that with absence, [N, names] in [-2, 2]; rows have length 1.

    Several sentences of one side are averaged as vectors, and the average is scaled back to length 1.
    """
    columns = []
    for name in names:
        there, not_there = (mean_direction(np.asarray(embed(side))) for side in sentences.of(name))
        columns.append(images.astype(np.float64) @ (there - not_there))
    return np.stack(columns, axis=1) if columns else np.zeros((len(images), 0))


def classify(
    entries: Sequence[Entry], scores: Mapping[str, NDArray[np.float64]], wording: str, *, trials: int, level: float,
    rng: np.random.Generator,
) -> ZeroShot:  # fmt: skip
    """Areas under the ROC curve of every label and observation that has a score.

    A study whose label is unknown or uncertain stays out. An observation is known where the corpus carries the exact
    findings.
    """
    seed = int(rng.integers(1 << 62))  # each name resamples from the same stream, whatever the other names are

    def area(name: str, truths: Sequence[bool | None]) -> Auroc:
        known = np.array([truth is not None for truth in truths], bool)
        truth = np.array([bool(one) for one in truths], bool)[known]
        patients = [entry.patient for entry, kept in zip(entries, known, strict=True) if kept]
        resamples = Resamples(patients, trials=trials, rng=np.random.Generator(np.random.PCG64(seed)))
        return auroc_interval(scores[name][known], truth, resamples, level)

    labels = {name: area(name, [entry.label(name) for entry in entries]) for name in CHEXPERT_14 if name in scores}
    observations = {
        name: area(name, [None if entry.present is None else name in entry.present for entry in entries])
        for name in scores
        if name in OBSERVATIONS
    }
    return ZeroShot(wording, labels, observations, _mean_area(labels), _mean_area(observations))


def select_names(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Labels and observations for which the studies hold at least one positive and one negative."""
    found = []
    for name in CHEXPERT_14:
        if {0, 1} <= {entry.labels.get(name) for entry in entries}:
            found.append(name)
    known = [entry.present for entry in entries if entry.present is not None]
    seen = frozenset().union(*known) if known else frozenset()
    return (*found, *(name for name in OBSERVATIONS if name in seen and not all(name in one for one in known)))


def _fill(template: str, words: str) -> str:
    text = template.replace(_PLACEHOLDER, words)
    return text[:1].upper() + text[1:]


def mean_direction(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """The mean of several vectors, scaled back to length 1."""
    mean: NDArray[np.float64] = vectors.astype(np.float64).mean(axis=0)
    return mean / max(float(np.linalg.norm(mean)), 1e-12)


def _mean_area(areas: Mapping[str, Auroc]) -> MeanAuroc:
    values = [one.value for one in areas.values() if not math.isnan(one.value)]
    return MeanAuroc(math.fsum(values) / len(values) if values else math.nan, len(values))
