"""`cxrlab prefer sample`, `prefer judge` and `prefer pair`: from a model to preference pairs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.cli.result import Result, columns
from cxrlab.preference.config import JudgeConfig, PairConfig, SampleConfig

if TYPE_CHECKING:
    from cxrlab.preference.pair import Pairing
    from cxrlab.preference.rewards import Judging

# Rows of the table of pairs: field of `Pairing`, and what a person reads; those in `_RARE` only where they count.
_PAIRING = {
    "studies": "studies",
    "candidates": "candidates",
    "duplicates": "  the same as another",
    "empty": "  empty",
    "undefined": "  without a reward",
    "alone": "studies with fewer than two left",
    "ties": "pairs with equal rewards",
    "below_margin": "  below the margin",
    "too_long": "  chosen too long",
    "too_low": "  chosen too low",
    "cut": "  chosen cut at max_new_tokens",
    "not_preferred": "  not preferred by the judge itself",
    "contradicted": "  readers at odds",
    "kept": "pairs kept",
}
_RARE = ("too_low", "cut", "not_preferred", "contradicted")


def sample(config: SampleConfig, out: Path) -> Result:
    """Draw several reports for every study of a split into RUN/candidates.jsonl.

    A stopped run is continued by running the command again; a finished one is left as it is. A study whose image is
    missing or unreadable gets none: it is listed in RUN/summary.json, and the command fails with the count unless
    --allow-missing is given.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.preference.candidates import CANDIDATES
    from cxrlab.preference.sample import sample as run

    done = run(config, out)
    lines = [
        f"{done.candidates:,} candidates for {done.studies - len(done.missing):,} studies in {out / CANDIDATES}",
        f"{done.distinct:,} of them differ within their study; {_figure(done.mean_words, 1)} words on average",
    ]
    if done.truncated:
        lines.append(f"{done.truncated:,} were cut at max_new_tokens: in a pair they may be rejected, not chosen")
    if done.missing:
        lines.append(f"without a readable frontal image: {len(done.missing):,}")
    return Result("\n".join(lines), done)


def judge(config: JudgeConfig, out: Path) -> Result:
    """Give every candidate report a reward by its words and those of the reference, in RUN/rewards.jsonl.

    Exact findings of a corpus are never looked at. A stopped run is continued by running the command again, and asks a
    language model nothing twice; a finished one is left as it is.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.preference.judge import judge as run

    done = run(config, out)
    return Result(_judging_text(done), done)


def pair(config: PairConfig, out: Path) -> Result:
    """Make preference pairs of rewards (--rewards), or of what people said (--feedback, --data).

    RUN/pairs.jsonl has the better and the worse report of each pair, RUN/unpaired.jsonl the same reports one by one.
    Exit 1 when there is no pair.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.preference.pair import pair as run

    done = run(config, out)
    return Result(_pairing_text(done), done, ok=done.kept > 0)


def _judging_text(done: Judging) -> str:
    rows = [
        ("reward of the first candidate", _figure(done.first)),
        ("  of the best", _figure(done.best)),
        ("  of the worst", _figure(done.worst)),
        ("  mean", _figure(done.mean)),
        ("studies whose rewards are all equal", _percent(done.equal)),
        ("words of a candidate", _figure(done.mean_words, 1)),
        ("  of a reference", _figure(done.reference_words, 1)),
        ("correlation of reward and words", _figure(done.length_correlation)),
    ]
    lost = f", {done.undefined:,} without a reward" if done.undefined else ""
    head = f"{done.candidates:,} candidates of {done.studies:,} studies judged by {done.judge['name']}{lost}"
    notes = [f"{done.undecided:,} comparisons could not be read and count for nobody"] if done.undecided else []
    if done.undefined == done.candidates:
        notes.append("NO candidate has a reward, so that there will be no pair; requests.jsonl holds what a model said")
    return "\n".join([head, columns(rows), *notes])


def _pairing_text(done: Pairing) -> str:
    rows = [
        (words, f"{getattr(done, name):,}")
        for name, words in _PAIRING.items()
        if name not in _RARE or getattr(done, name)
    ]
    rows += [
        ("words of the chosen", _figure(done.chosen_words, 1)),
        ("  of the rejected", _figure(done.rejected_words, 1)),
        ("pairs whose chosen is longer", _percent(done.chosen_longer)),
        ("difference of rewards", _figure(done.mean_margin)),
    ]
    nothing = "" if done.kept else "\nthere is no pair to learn from; the table says why"
    return f"pairs by {done.judge}\n{columns(rows)}{nothing}"


def _figure(value: float, digits: int = 3) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f} %"
