"""`cxrlab data structure`: clean sections beside the source's text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.cli.result import Result, columns
from cxrlab.data.config import StructureConfig

if TYPE_CHECKING:
    from cxrlab.data.corpus import Corpus
    from cxrlab.models.text_model_cache import CachedTextModel


def structure(corpus: Path, config: StructureConfig, out: Path) -> Result:
    """Write a corpus with structured text beside the source's: four sections about one image, nothing invented.

    Demographics, history and comparisons go, what changed is told as it is now, findings move out of a merged
    impression. The findings reader checks every text; one that says more or less than its source is asked for again
    and at last made by rule. Studies of the test split pass unchanged. A stopped run is completed by running the
    command again.

    Args:
        corpus: Folder of the corpus to structure; it is left as it is.
        config: Settings.
        out: Folder of the new corpus; images are reached through links.
    """
    from cxrlab.data.corpus import load_corpus
    from cxrlab.data.structuring.rules import RULES
    from cxrlab.data.structuring.run import structure_corpus

    source = load_corpus(corpus)
    if config.model == RULES:
        return _told(structure_corpus(source, config, out))
    from cxrlab.evaluation.open_models import open_text_model

    with open_text_model(config.model, config.asking, [source.shown], out) as model:
        return _told(structure_corpus(source, config, out, model), model)


def _told(done: Corpus, model: CachedTextModel | None = None) -> Result:
    """What the card counts and, of a model, what its answers took."""
    card = done.card
    text = f"{done.path}: {card.counts.get('studies', 0):,} studies"
    if card.remarks:
        text += "\n" + columns([[f"{count:,}", what] for what, count in card.remarks.items()], "  ")
    data: dict[str, object] = {"path": done.path, "counts": card.counts, "remarks": card.remarks}
    if model is not None:
        model.recall()  # of a corpus that was finished before
        budget = model.budget
        text += (
            f"\n{model.paid:,} answers paid for, {model.found:,} found: {budget.prompt_tokens:,} tokens asked, "
            f"{budget.answer_tokens:,} answered, cost {budget.spent:.4f}"
        )
        spent = {"prompt_tokens": budget.prompt_tokens, "answer_tokens": budget.answer_tokens, "cost": budget.spent}
        data |= {"paid": model.paid, "found": model.found, **spent}
    return Result(text, data)
