"""How far an aligned model has moved from its start: KL(after ‖ before), estimated from reports that it draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cxrlab.core.runs import Run
from cxrlab.evaluation.answering import Films
from cxrlab.models.decoding import Decoding
from cxrlab.preference.asked_twice import AFTER, BEFORE, Asked, batches, paired, write_lines
from cxrlab.preference.train_config import Measure

DRIFT = "drift.jsonl"


def drawn_reports(model: Any, films: Films, studies: Sequence[Asked], settings: Measure, seed: int) -> list[str]:
    """One report a study from the model's own distribution."""
    decoding = Decoding("sample", max_new_tokens=settings.max_new_tokens, seed=seed)
    found: list[str] = []
    for batch in batches(studies, settings.batch_size, "drawing reports"):
        shown = [films.film(study.id) for study in batch], [films.indication(study.id) for study in batch]
        found += [answers[0].text for answers in model.answers(*shown, decoding)]
    return found


def weighed(
    model: Any, films: Films, studies: Sequence[Asked], reports: Sequence[str], settings: Measure
) -> tuple[list[float], list[int]]:
    """Natural log-probability of each report under a model, and its tokens."""
    import torch

    sums: list[float] = []
    tokens: list[int] = []
    pairs = list(zip(studies, reports, strict=True))
    for batch in batches(pairs, settings.batch_size, "weighing drawn reports"):
        shown = [films.film(study.id) for study, _ in batch]
        texts = [report or "." for _, report in batch]  # a report of no word has no token to weigh
        with torch.no_grad():
            found = model.log_probabilities(shown, texts, [films.indication(study.id) for study, _ in batch])
        sums += found.sums.tolist()
        tokens += found.mask.sum(dim=1).tolist()
    return sums, tokens


def drift(
    run: Run, studies: Sequence[Asked], sums: Mapping[str, Sequence[float]], tokens: Sequence[int], seed: int
) -> dict[str, Any]:
    """KL a report with its interval, and a token; the evidence goes into drift.jsonl.

    Args:
        run: The open run.
        studies: In order.
        sums: Log-probability of the drawn reports under the model before and after.
        tokens: Of the reports.
        seed: Of the resamples.
    """
    rows = zip(studies, sums[BEFORE], sums[AFTER], tokens, strict=True)
    write_lines(run, DRIFT, ({"id": one.id, BEFORE: low, AFTER: high, "tokens": n} for one, low, high, n in rows))
    each = paired("log-probability", sums[BEFORE], sums[AFTER], [study.patient for study in studies], seed)
    a_token = float(np.sum(sums[AFTER]) - np.sum(sums[BEFORE])) / max(sum(tokens), 1)
    return {"kl_report": each["difference"], "low": each["low"], "high": each["high"], "kl_token": a_token}
