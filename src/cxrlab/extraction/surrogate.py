"""What was asked and answered, as a corpus that a surrogate can learn from.

A picture stands for an image and the victim's words for its report. Where answers are learnt in several wordings, each
wording is a study of its own with the same picture.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import os_error
from cxrlab.core.folders import write_folder
from cxrlab.core.records import ImageFile, Report, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.card import Card
from cxrlab.data.corpus import Corpus
from cxrlab.data.corpus_writer import CorpusWriter
from cxrlab.extraction.config import Fitting
from cxrlab.extraction.records import PICTURES, Query
from cxrlab.extraction.report_text import report_content

if TYPE_CHECKING:
    from cxrlab.models.hf.model import HfModel
    from cxrlab.models.load_settings import LoadSettings


class EmptyTranscript(DataError):
    """No answer of a transcript says anything of an image."""


def write_transcript(
    queries: Sequence[Query],
    run: Path,
    out: Path,
    *,
    victim: str,
    wordings: int = 1,
    repeats: int | None = None,
    rewrite: bool = False,
    seed: int = 0,
) -> Corpus:
    """Make the corpus, or find it made.

    Args:
        queries: Answered ones; what says nothing of an image, such as a refusal, is left out.
        run: Run folder with the pictures.
        out: Folder of the corpus.
        victim: Who answered.
        wordings: Wordings of each answer.
        repeats: Most queries with the same answer, the first ones; all when None.
        rewrite: The victim's own words are left out, and all wordings are new.
        seed: Decides the other wordings.
    """
    told = _without_repeats([query for query in queries if report_content(query.report).has_statements], repeats)
    if not told:
        raise EmptyTranscript(
            f"none of {len(queries)} answers says anything of an image; there is nothing to learn from."
        )
    card = Card(
        name="transcript",
        source=f"Pictures that were put to {victim}, with its answers.",
        licence="For the audit of that model alone.",
        settings={
            "queries": len(told),
            "first": told[0].number,
            "last": told[-1].number,
            "wordings": wordings,
            "repeats": repeats,
            "rewrite": rewrite,
            "seed": seed,
        },
    )
    with CorpusWriter(out, card) as writer:
        _reach(out / PICTURES, run / PICTURES)
        if not writer.complete:
            for query in told:
                for study in _studies(query, wordings, rewrite, seed):
                    if study.id not in writer:
                        writer.add(study)
    return writer.finish()


def _reach(place: Path, pictures: Path) -> None:
    """Let a transcript reach the pictures of its run, by the way from the one to the other: both move together."""
    way = os.path.relpath(pictures, place.parent)
    try:
        if not (place.is_symlink() and os.readlink(place) == way):
            place.unlink(missing_ok=True)
            place.symlink_to(way, target_is_directory=True)
    except OSError as error:
        raise os_error(error, place) from error


def _without_repeats(queries: Sequence[Query], most: int | None) -> list[Query]:
    seen: Counter[str] = Counter()
    kept = []
    for query in queries:
        seen[query.report] += 1
        if most is None or seen[query.report] <= most:
            kept.append(query)
    return kept


def _studies(query: Query, wordings: int, rewrite: bool, seed: int) -> Iterator[Study]:
    from cxrlab.extraction.evasion import rewrite as retold

    for number in range(wordings):
        own = number == 0 and not rewrite
        text = query.report if own else retold(query.report, seed + number)
        yield Study(
            id=f"q{query.number:06d}" + (f"_{number}" if number else ""),
            patient=f"q{query.number:06d}",
            split="train",
            images=(ImageFile(f"{PICTURES}/{query.sha256}.png", View.FRONTAL),),
            sections=Report(findings=text),
        )


PARTS = "parts:"
CHECKPOINT = "checkpoint"
_BILLION = 1_000_000_000
LARGE_RATE, SMALL_RATE = 1e-5, 3e-3


class Learner(Protocol):
    """Whoever can make a copy out of a transcript."""

    def fit(self, transcript: Path, out: Path, *, between_rounds: bool = False) -> Any:
        """A new copy: writes reports (`generate`) and, for alignment, tells `losses(images, reports)`.

        Args:
            transcript: Folder of the corpus.
            out: Run folder of this fit.
            between_rounds: Whether it serves to make pictures, and is not the copy in the end.
        """
        ...


@dataclass(frozen=True)
class Parts:
    """A surrogate by name, taken apart as trainings want it.

    Args:
        start: A whole LLaVA, or None.
        encoder: Vision vision encoder, where there is no start.
        language_model: Language model, likewise.
    """

    start: str | None = None
    encoder: str | None = None
    language_model: str | None = None


def parse_surrogate(name: str) -> Parts:
    """`parts:VISION_ENCODER+LANGUAGE_MODEL`, or the name of a whole LLaVA."""
    if not name.startswith(PARTS):
        return Parts(start=name)
    vision_encoder, plus, language = name.removeprefix(PARTS).partition("+")
    if not plus or not vision_encoder or not language:
        raise ConfigError(
            f"surrogate '{name}' names no two parts; write parts:VISION_ENCODER+LANGUAGE_MODEL, such as "
            "parts:builtin:encoder+builtin:general."
        )
    return Parts(encoder=vision_encoder, language_model=language)


@dataclass(frozen=True)
class LlavaLearner:
    """Fine-tunes a LLaVA on the transcript, from the same start every time.

    Args:
        name: Of the surrogate.
        fitting: How.
        seed: Of new weights and order.
        loading: How the copy is opened afterwards.
    """

    name: str
    fitting: Fitting
    seed: int
    loading: LoadSettings

    def fit(self, transcript: Path, out: Path, *, between_rounds: bool = False) -> HfModel:
        """The copy, opened; a stopped training goes on, a finished one is opened again."""
        from cxrlab.training.report_training import finetune

        finetune(self._config(transcript, between_rounds), out)
        return self.open(out)

    def open(self, out: Path) -> HfModel:
        """The copy that a fit has left in its run folder."""
        from cxrlab.models.hf.model import HfModel

        return HfModel.load(str(out / CHECKPOINT), loading=self.loading)

    def untouched(self, out: Path) -> str:
        """The name of the surrogate as it was before any query; parts are put together in `out`."""
        from cxrlab.models.model_card import ModelCard
        from cxrlab.training.llava import load_start, start_model_name
        from cxrlab.training.report_training import save_llava

        parts = parse_surrogate(self.name)
        if parts.start is not None:
            return start_model_name(parts.start)
        folder = out / CHECKPOINT
        if not folder.is_dir():
            start = load_start(None, parts.encoder, parts.language_model, self.seed)
            names = {"made_from": start.names}
            card = ModelCard("parts", self.fitting.prompts, start.collections, trained_on=start.trained_on, extra=names)
            write_folder(folder, lambda to: save_llava(to, start.model, start.processor, card, "float32"))
        return f"hf:{folder}"

    def _config(self, transcript: Path, between_rounds: bool) -> Any:
        from cxrlab.data.corpus import load_corpus
        from cxrlab.training.config import FinetuneConfig, Optimisation

        fitting, parts = self.fitting, parse_surrogate(self.name)
        samples = len(load_corpus(transcript).ids("train"))  # few, where most was refused: a smaller step then
        steps = fitting.round_steps if between_rounds and fitting.round_steps else fitting.steps
        return FinetuneConfig(
            data=transcript,
            start=parts.start,
            encoder=parts.encoder,
            language_model=parts.language_model,
            indication=False,
            train_vision_encoder=fitting.train_vision_encoder,
            lora_rank=fitting.lora_rank,
            lora_alpha=2.0 * max(fitting.lora_rank, 1),
            lora_dropout=0.0,
            prompts=fitting.prompts,
            optimisation=Optimisation(
                learning_rate=self.learning_rate,
                schedule=fitting.schedule,
                epochs=fitting.epochs,
                steps=steps,
                batch_size=min(fitting.batch_size, samples),
                precision=fitting.precision,
                max_length=fitting.max_length,
                seed=self.seed,
            ),
        )

    @property
    def learning_rate(self) -> float:
        """That of the settings, or the one that fits the size of the surrogate."""
        if self.fitting.learning_rate is not None:
            return self.fitting.learning_rate
        return LARGE_RATE if _weights(self.name, self.loading) >= _BILLION else SMALL_RATE


def _weights(name: str, loading: LoadSettings) -> int:
    """About how many weights a surrogate has, what it stands on included: half the bytes of its files."""
    from cxrlab.models.hf.adapters import lineage, resolve
    from cxrlab.models.local_files import locate
    from cxrlab.training.llava import start_model_name

    parts = parse_surrogate(name)
    named = [start_model_name(parts.start)] if parts.start else [parts.encoder, parts.language_model]
    folders: set[Path] = set()
    for part in named:
        if part is not None and not part.startswith("fresh:"):
            folders.update(lineage(locate(resolve(part, Path()), loading), loading))
    return sum(file.stat().st_size for folder in folders for file in folder.glob("*.safetensors")) // 2
