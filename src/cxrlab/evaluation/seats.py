"""A judge in the seat of each rater in turn: how far both are from the others, as `validation.json` has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from cxrlab.metrics.tally import Matrix


def seats(ratings: Matrix, raters: Sequence[str], name: str, judged: Matrix) -> dict[str, Any]:
    """The table of one judge, with the mean over the raters.

    Args:
        ratings: [pairs, raters], at least two raters; not-a-number where one did not rate.
        raters: Their names.
        name: The metric that sits in their seats.
        judged: Its values [pairs] in the raters' unit; a pair without one stays out, as `n` tells.
    """
    from cxrlab.metrics.statistics.raters import leave_one_rater_out

    rows = [asdict(one) for one in leave_one_rater_out(ratings, judged)]
    means = {key: float(np.mean([row[key] for row in rows])) for key in ("rater_difference", "judge_difference")}
    by_rater = {raters[row["rater"]]: {key: value for key, value in row.items() if key != "rater"} for row in rows}
    return {"judge": name, "by_rater": by_rater, "mean": means}
