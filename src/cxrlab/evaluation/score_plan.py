"""Plan scoring: score a few pairs by every metric, and count the requests of judges on all of them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from cxrlab.core.llm_requests import llm_operational_fields
from cxrlab.core.plan import Plan, Work, from_two_sizes
from cxrlab.core.runs import progress
from cxrlab.evaluation.config import ScoreConfig
from cxrlab.evaluation.counted_requests import NOTE, CountedModels
from cxrlab.evaluation.score import chosen_metrics, score_inputs
from cxrlab.evaluation.score_inputs import load_inputs
from cxrlab.evaluation.select_metrics import build_extra_families, build_judges, select_metrics
from cxrlab.metrics.report_pairs import Batch

_FEW, _MORE = 32, 128  # pairs that are scored to measure


def plan_score(config: ScoreConfig, out: Path | None = None) -> Plan:
    """Score two small samples by every metric that needs no request; what does not grow with the pairs counts once.

    Args:
        out: A run folder that may hold the scores already.
    """
    inputs = load_inputs(config.references, config.predictions, **config.matching)
    if progress(out, config, seed=config.seed, operational=llm_operational_fields()) == "finished":
        return Plan("score", ())
    names, judges = chosen_metrics(config)
    counted = CountedModels(config.llm, inputs.egress_data, folder=out is not None)
    opened = build_judges(judges, counted, config.judging)
    extra = build_extra_families(config)
    chosen = select_metrics(names, extra, beside_judges=bool(opened))
    batch, count = Batch(inputs.pairs), len(inputs.pairs)
    for judge in opened:
        judge.family.judged(batch)

    def seconds(pairs: int) -> float:
        places = [number * count // pairs for number in range(pairs)]  # from all over the file
        some = replace(
            inputs,
            pairs=tuple(inputs.pairs[place] for place in places),
            attributes=tuple(inputs.attributes[place] for place in places),
        )
        start = time.perf_counter()
        score_inputs(some, chosen, config, extra)
        return time.perf_counter() - start

    seconds(min(2, count))  # loads tables and models
    each, once, measured = from_two_sizes(seconds, _FEW, _MORE, count)
    work = Work("pairs by every metric", "pair", count, each, once_s=once, measured=measured)
    return Plan(
        "score",
        (work, *counted.work()),
        facts={"metrics": len(chosen.ready) + len(chosen.extra), "judges": len(opened)},
        left_out=("reading the files and loading models of metrics.", *((NOTE,) if opened else ())),
    )
