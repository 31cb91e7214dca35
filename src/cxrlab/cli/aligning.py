"""`cxrlab prefer train`: a model aligned by preference, and what that has gained and cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cxrlab.cli.result import Result, columns
from cxrlab.cli.training import seeded
from cxrlab.core.headlines import headlines
from cxrlab.preference.config import PreferConfig
from cxrlab.render.alignment import no_better_than_start


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
    for name in dict.fromkeys((*headlines(gaps), "green:rules-lc", "errors.significant")):
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
    interval = f"{_figure(gap['low'], '+')} to {_figure(gap['high'], '+')}"
    return [name, _figure(before), _figure(after), _figure(gap["difference"], "+"), interval, verdict]


def _figure(value: Any, sign: str = "") -> str:
    return "–" if value is None or value != value else f"{value:{sign}.3f}"
