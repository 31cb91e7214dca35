"""`cxrlab data structure`: clean sections beside the source's text."""

from __future__ import annotations

from pathlib import Path

from cxrlab.cli.result import Result, columns
from cxrlab.data.config import StructureConfig


def structure(corpus: Path, config: StructureConfig, out: Path) -> Result:
    """Write a corpus with structured text beside the source's: four sections about one film, nothing invented.

    Demographics, history and comparisons go, what changed is told as it is now, findings move out of a merged
    impression. The findings reader checks every text; one that says more or less than its source is asked for again
    and at last made by rule. Studies of the test split pass unchanged. A stopped run is completed by running the
    command again.

    Args:
        corpus: Folder of the corpus to structure; it is left as it is.
        config: Settings.
        out: Folder of the new corpus; films are reached through links.
    """
    from cxrlab.data.corpus import load_corpus
    from cxrlab.data.structuring.rules import RULES
    from cxrlab.data.structuring.run import structure_corpus
    from cxrlab.models.names import load_text_model

    model = None if config.model == RULES else load_text_model(config.model)
    done = structure_corpus(load_corpus(corpus), config, out, model)
    card = done.corpus.card
    text = f"{done.corpus.path}: {card.counts.get('studies', 0):,} studies"
    if card.remarks:
        text += "\n" + columns([[f"{count:,}", what] for what, count in card.remarks.items()], "  ")
    data: dict[str, object] = {"path": done.corpus.path, "counts": card.counts, "remarks": card.remarks}
    if model is not None:
        spent = {"answers": done.answers, "prompt_tokens": done.prompt_tokens, "answer_tokens": done.answer_tokens}
        text += (
            f"\n{done.answers:,} answers kept: {done.prompt_tokens:,} tokens asked, {done.answer_tokens:,} answered, "
            f"cost {done.cost:.4f}"
        )
        data |= {**spent, "cost": done.cost}
    return Result(text, data)
