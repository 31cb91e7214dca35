"""Metrics turned one way: the value of every pair, higher always better, so that they can be ranked together."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.core.progress import track
from cxrlab.evaluation.error_benchmark import better, tallies_of
from cxrlab.evaluation.judges import OpenJudge
from cxrlab.metrics.families import families, metric_names
from cxrlab.metrics.pairs import Batch
from cxrlab.metrics.tally import Matrix


def oriented(batch: Batch, names: Sequence[str] | None = None, judges: Sequence[OpenJudge] = ()) -> dict[str, Matrix]:
    """Metric → value of each pair [N], negated where lower is better; not-a-number where undefined.

    A metric whose value for a single pair means nothing is left out.

    Args:
        batch: The pairs.
        names: Names or groups of metrics; the default ones when None.
        judges: Judges by language models, whose metrics follow.
    """
    wanted = metric_names(names)
    tallies = [tally for family in track(families(names), "scoring") for tally in tallies_of([family], batch, wanted)]
    tallies += [tally for judge in track(judges, "asking judges") for tally in judge.tallies(batch)]
    return {tally.metric.name: better(tally) for tally in tallies if tally.metric.by_pair}
