"""How far an aligned model has moved from its start: KL(after ‖ before), estimated from reports that it draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cxrlab.core.runs import Run
from cxrlab.evaluation.inference import Images
from cxrlab.models.decoding import TRUNCATED, Decoding
from cxrlab.preference.asked_twice import AFTER, BEFORE, Asked, batches, paired, write_lines
from cxrlab.preference.train_config import Measure

DRIFT = "drift.jsonl"


def drawn_reports(model: Any, images: Images, studies: Sequence[Asked], settings: Measure, seed: int) -> dict[str, str]:
    """Study → one report from the model's own distribution.

    A report that was cut at `max_new_tokens` is left out: weighed again it would have an end that was never drawn.
    """
    decoding = Decoding("sample", max_new_tokens=settings.max_new_tokens, seed=seed)
    found: dict[str, str] = {}
    for batch in batches(studies, settings.batch_size, "drawing reports"):
        shown = [images.image(study.id) for study in batch], [images.indication(study.id) for study in batch]
        for study, (answer, *_) in zip(batch, model.answers(*shown, decoding), strict=True):
            if not answer.extra.get(TRUNCATED):
                found[study.id] = answer.text
    return found


def weighed(
    model: Any, images: Images, studies: Sequence[Asked], reports: Mapping[str, str], settings: Measure
) -> tuple[list[float], list[int]]:
    """Natural log-probability of the report of each study under a model, and its tokens, the end token among them."""
    import torch

    sums: list[float] = []
    tokens: list[int] = []
    for batch in batches(studies, settings.batch_size, "weighing drawn reports"):
        shown, texts = [images.image(study.id) for study in batch], [reports[study.id] for study in batch]
        with torch.no_grad():
            found = model.log_probabilities(shown, texts, [images.indication(study.id) for study in batch])
        sums += found.sums.tolist()
        tokens += found.mask.sum(dim=1).tolist()
    return sums, tokens


def drift(
    run: Run, studies: Sequence[Asked], sums: Mapping[str, Sequence[float]], tokens: Sequence[int], cut: int, seed: int
) -> dict[str, Any]:
    """KL a report with its interval, and a token; the evidence goes into drift.jsonl.

    Args:
        run: The open run.
        studies: Those with a report, in order.
        sums: Log-probability of the drawn reports under the model before and after.
        tokens: Of the reports.
        cut: Studies whose report was cut, and is not among them.
        seed: Of the resamples.
    """
    rows = zip(studies, sums[BEFORE], sums[AFTER], tokens, strict=True)
    write_lines(run, DRIFT, ({"id": one.id, BEFORE: low, AFTER: high, "tokens": n} for one, low, high, n in rows))
    each = paired("log-probability", sums[BEFORE], sums[AFTER], [study.patient for study in studies], seed)
    a_token = float(np.sum(sums[AFTER]) - np.sum(sums[BEFORE])) / max(sum(tokens), 1)
    told = {"kl_report": each["difference"], "low": each["low"], "high": each["high"], "kl_token": a_token}
    return {**told, "n": len(studies), "cut": cut}
