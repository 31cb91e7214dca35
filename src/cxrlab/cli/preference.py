"""`cxrlab prefer sample`, `prefer judge` and `prefer pair`: from a model to preference pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.cli.output import Result, columns
from cxrlab.cli.training import seeded
from cxrlab.core.metric_names import headline_metrics
from cxrlab.preference.config import JudgeConfig, PairConfig, PreferConfig, SampleConfig
from cxrlab.render.alignment import no_better_than_start

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


def train(config: PreferConfig, out: Path, seed: int | None = None) -> Result:
    """Align a report model by preference pairs, and compare it with what it was.

    RUN/checkpoint is the aligned model, an adapter on the start or with --lora-rank 0 a whole LLaVA;
    RUN/preference.json has every metric before and after with the paired difference, the length of reports, drift and
    closed questions.
    A stopped run goes on where it stopped and ends with the same weights; a finished one is left as it is.

    Args:
        config: Settings.
        out: The run folder.
        seed: In place of optimisation.seed: decides order, new weights, draws and resamples.
    """
    from cxrlab.preference.train import prefer

    done, found = prefer(seeded(config, seed), out)
    text = (
        f"{done.steps:,} steps on {done.rows:,} {'pairs' if config.loss.paired else 'reports'} ({config.loss.name}), "
        f"loss {done.loss:.3f}; the result is in {out / done.checkpoint}"
    )
    if done.cut:
        text += f"\n{done.cut:,} reports lost their end to max_length"
    if found is not None:
        text += f"\n\n{_table(found)}"
    return Result(text, {"training": done, "preference": found})


def _table(found: Mapping[str, Any]) -> str:
    """Before, after and difference of the headline metrics and of what alignment may cost."""
    rows = [["", "before", "after", "difference", "95 % interval", ""]]
    gaps = found["difference"]
    for name in dict.fromkeys((*headline_metrics(gaps), "green:rules-lc", "errors.significant")):
        if name in gaps:
            before, after = (found[side][name]["value"] for side in ("before", "after"))
            rows.append(_row(name, before, after, gaps[name], gaps[name]["verdict"]))
    words = found["length"]["words"]
    rows.append(_row("words a report", words["before"], words["after"], words))
    if asked := found.get("questions"):
        right = asked["accuracy"]
        rows.append(_row("closed questions right", right["before"], right["after"], right))
    told = f"{found['n']} studies of {found['patients']} patients"
    if drift := found.get("drift"):
        told += f"; drift {drift['kl_report']:.2f} nats a report"
    if worse := no_better_than_start(found["selection"]):
        told += f"\n{worse}"
    return f"{columns(rows)}\n{told}"


def _row(name: str, before: Any, after: Any, gap: Mapping[str, Any], verdict: str = "") -> list[str]:
    interval = f"{_figure_aligning(gap['low'], '+')} to {_figure_aligning(gap['high'], '+')}"
    return [
        name,
        _figure_aligning(before),
        _figure_aligning(after),
        _figure_aligning(gap["difference"], "+"),
        interval,
        verdict,
    ]


def _figure_aligning(value: Any, sign: str = "") -> str:
    return "–" if value is None or value != value else f"{value:{sign}.3f}"
