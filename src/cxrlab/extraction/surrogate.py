"""Surrogates: write the victim's answers as a training corpus, and fine-tune a model on it.

Where answers are learnt in several wordings, each wording is a study of its own with the same image.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cxrlab.core.atomic_folders import write_folder
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import os_error
from cxrlab.core.records import ImageFile, Report, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.card import Card
from cxrlab.data.corpus import Corpus
from cxrlab.data.corpus_writer import CorpusWriter
from cxrlab.data.views import KEEP_COLOUR
from cxrlab.extraction.config import Fitting
from cxrlab.extraction.records import PICTURES, Query
from cxrlab.extraction.report_content import report_content

if TYPE_CHECKING:
    from cxrlab.models.hf.model import HfModel
    from cxrlab.models.load_settings import LoadSettings


class EmptyTranscript(DataError):
    """No answer of a transcript states anything about an image."""


def write_transcript(
    queries: Sequence[Query],
    run: Path,
    out: Path,
    *,
    victim: str,
    wordings: int = 1,
    repeats: int | None = None,
    rewrite: bool = False,
    colour: bool = False,
    seed: int = 0,
) -> Corpus:
    """Write the training corpus of answered queries; a complete one is left as it is.

    Args:
        queries: Answers that state nothing about an image, such as refusals, are left out.
        run: Run folder with the images; the corpus links to them by a relative path, since both move together.
        victim: Name of the victim, for the card.
        wordings: Wordings of each answer.
        repeats: Most queries with the same answer, the first ones; all when None.
        rewrite: The victim's own words are left out, and all wordings are new.
        colour: The images are learnt in colour, as they were sent.
    """
    from cxrlab.extraction.adaptive_attackers import rewrite as reworded

    kept, answers = [], Counter[str]()
    for query in queries:
        if report_content(query.report).has_statements:
            answers[query.report] += 1
            if repeats is None or answers[query.report] <= repeats:
                kept.append(query)
    if not kept:
        raise EmptyTranscript(
            f"None of {len(queries)} answers states anything about an image; there is nothing to learn from."
        )
    card = Card(
        name="transcript",
        source=f"Images that were sent to {victim}, with its answers.",
        licence="For the audit of that model alone.",
        settings={
            "queries": len(kept),
            "first": kept[0].number,
            "last": kept[-1].number,
            "wordings": wordings,
            "repeats": repeats,
            "rewrite": rewrite,
            **({"colour": True} if colour else {}),
            "seed": seed,
        },
    )
    with CorpusWriter(out, card) as writer:
        link, target = out / PICTURES, os.path.relpath(run / PICTURES, out)
        try:
            if not (link.is_symlink() and os.readlink(link) == target):
                link.unlink(missing_ok=True)
                link.symlink_to(target, target_is_directory=True)
        except OSError as error:
            raise os_error(error, link) from error
        wanted = [] if writer.complete else [(query, number) for query in kept for number in range(wordings)]
        for query, number in wanted:
            name = f"q{query.number:06d}"
            own = number == 0 and not rewrite
            study = Study(
                id=name + (f"_{number}" if number else ""),
                patient=name,
                split="train",
                images=(ImageFile(f"{PICTURES}/{query.sha256}.png", View.FRONTAL),),
                sections=Report(findings=query.report if own else reworded(query.report, seed + number)),
                extra={KEEP_COLOUR: True} if colour else {},
            )
            if study.id not in writer:
                writer.add(study)
    return writer.finish()


PARTS = "parts:"
CHECKPOINT = "checkpoint"
_BILLION = 1_000_000_000
LARGE_RATE, SMALL_RATE = 1e-5, 3e-3


class Learner(Protocol):
    """Trains surrogates."""

    def fit(self, transcript: Path, out: Path, *, between_rounds: bool = False) -> Any:
        """Train on the corpus `transcript` in the run folder `out`: a model with `answers` and, to align, `losses`.

        `between_rounds` marks a surrogate that moves images and is not the final copy.
        """
        ...


@dataclass(frozen=True)
class Parts:
    """A surrogate by name: a whole model (`start`), or a vision encoder and a language model."""

    start: str | None = None
    encoder: str | None = None
    language_model: str | None = None


def parse_surrogate(name: str) -> Parts:
    """`parts:VISION_ENCODER+LANGUAGE_MODEL`, or the name of a whole model."""
    if not name.startswith(PARTS):
        return Parts(start=name)
    vision_encoder, plus, language = name.removeprefix(PARTS).partition("+")
    if not plus or not vision_encoder or not language:
        raise ConfigError(
            f"surrogate='{name}' does not name two parts; write parts:VISION_ENCODER+LANGUAGE_MODEL, such as "
            "parts:builtin:encoder+builtin:general."
        )
    return Parts(encoder=vision_encoder, language_model=language)


@dataclass(frozen=True)
class SurrogateTrainer:
    """Fine-tunes the model `name` on a transcript, from the same start every time."""

    name: str
    fitting: Fitting
    seed: int
    loading: LoadSettings

    def check(self) -> None:
        """Refuse settings that this machine cannot train with."""
        from cxrlab.training.distributed import training_device
        from cxrlab.training.report_model import check_quantisation

        if self.fitting.quantise != "none":
            check_quantisation(training_device())

    def fit(self, transcript: Path, out: Path, *, between_rounds: bool = False) -> HfModel:
        """The trained copy; an interrupted training is resumed, a finished one loaded."""
        from cxrlab.models.hf.model import HfModel
        from cxrlab.training.align_finetune import finetune

        finetune(self.training_config(transcript, between_rounds=between_rounds), out)
        return HfModel.load(str(out / CHECKPOINT), loading=self.loading)

    def untouched(self, out: Path) -> str:
        """The name of the surrogate before training; parts are combined into a checkpoint in `out`."""
        from cxrlab.models.hf.conversations import OWN, set_conversation
        from cxrlab.models.model_card import ModelCard
        from cxrlab.training.align_finetune import save_whole
        from cxrlab.training.report_model import load_start, start_model_name

        parts = parse_surrogate(self.name)
        if parts.start is not None:
            return start_model_name(parts.start)
        folder = out / CHECKPOINT
        if not folder.is_dir():
            start = load_start(None, parts.encoder, parts.language_model, self.seed)
            set_conversation(start.processor, OWN)
            names = {"made_from": start.names}
            card = ModelCard("parts", self.fitting.prompts, start.collections, trained_on=start.trained_on, extra=names)
            write_folder(folder, lambda to: save_whole(to, start.model, start.processor, card, "float32"))
        return f"hf:{folder}"

    def training_config(self, transcript: Path, *, between_rounds: bool) -> Any:
        """Settings of the fine-tuning on a transcript; a step is no larger than the transcript."""
        from cxrlab.data.corpus import load_corpus
        from cxrlab.training.config import FinetuneConfig, Optimisation

        fitting, parts = self.fitting, parse_surrogate(self.name)
        samples = len(load_corpus(transcript).ids("train"))
        batch_size = min(fitting.batch_size, samples)
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
            quantise=fitting.quantise,
            prompts=fitting.prompts,
            track=fitting.track,
            optimisation=Optimisation(
                learning_rate=self.learning_rate,
                schedule=fitting.schedule,
                epochs=fitting.epochs,
                steps=steps,
                batch_size=batch_size,
                accumulate=min(fitting.accumulate, samples // batch_size),
                gradient_checkpointing=fitting.gradient_checkpointing,
                precision=fitting.precision,
                max_length=fitting.max_length,
                seed=self.seed,
            ),
        )

    @property
    def learning_rate(self) -> float:
        """That of the settings, or the default for the size of the surrogate."""
        if self.fitting.learning_rate is not None:
            return self.fitting.learning_rate
        return LARGE_RATE if count_weights(self.name, self.loading) >= _BILLION else SMALL_RATE


def count_weights(name: str, loading: LoadSettings) -> int:
    """Approximate number of weights of a surrogate, base models of adapters included: half the bytes of its files."""
    from cxrlab.models.hf.adapters import lineage, resolve
    from cxrlab.models.local_files import locate
    from cxrlab.training.report_model import start_model_name

    parts = parse_surrogate(name)
    named = [start_model_name(parts.start)] if parts.start else [parts.encoder, parts.language_model]
    folders: set[Path] = set()
    for part in named:
        if part is not None and not part.startswith("fresh:"):
            folders.update(lineage(locate(resolve(part, Path()), loading), loading))
    return sum(file.stat().st_size for folder in folders for file in folder.glob("*.safetensors")) // 2
