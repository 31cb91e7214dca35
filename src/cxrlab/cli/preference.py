"""`cxrlab prefer sample`, `judge`, `pair` and `train`: from a model to preference pairs and an aligned model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from cxrlab.cli.output import Result, columns, measurement, number, unused_data
from cxrlab.cli.plans import folder, named_gpus, planned
from cxrlab.cli.training import seeded
from cxrlab.core.errors import ConfigError
from cxrlab.core.headline_metrics import headline_metrics
from cxrlab.core.workers import Engine
from cxrlab.preference.config import JudgeConfig, PairConfig, PreferConfig, SampleConfig
from cxrlab.render.alignment import no_better_than_start

# Rows of the table of pairs: field of `Pairing` and its label; those in `_RARE` are shown only when they are not 0.
_PAIRING = {
    "studies": "studies",
    "candidates": "candidates",
    "duplicates": "  identical to another",
    "empty": "  empty",
    "undefined": "  without a reward",
    "alone": "studies with fewer than two left",
    "ties": "pairs with equal rewards",
    "below_margin": "  below the margin",
    "too_long": "  chosen too long",
    "too_low": "  chosen too low",
    "cut": "  chosen cut at max_new_tokens",
    "not_preferred": "  not preferred by the judge itself",
    "contradicted": "  readers disagree",
    "kept": "pairs kept",
}
_RARE = ("too_low", "cut", "not_preferred", "contradicted")


def sample(
    config: SampleConfig,
    out: Path | None = None,
    plan: bool = False,
    engine: Literal["local", "ray"] = "local",
    workers: int = 0,
    gpus_per_worker: float | None = None,
    ray_address: str | None = None,
) -> Result:
    """Generate several reports for every study of a split into RUN/candidates.jsonl.

    Run the command again to continue an interrupted run; a finished one is left as it is. A study whose image is
    missing or unreadable gets none: it is listed in RUN/summary.json, and the command fails with their number unless
    --allow-missing is given.

    Args:
        out: Run folder.
        plan: Sample two batches, print how long the whole run takes and in how much memory, and write nothing.
    """
    if plan:
        if engine != "local":
            raise ConfigError("--plan measures one process; leave out --engine, and divide the time by the workers.")
        from cxrlab.preference.sample_candidates import plan_sampling

        return planned(plan_sampling(config, out))
    out = folder(out)
    from cxrlab.preference.candidate_files import CANDIDATES
    from cxrlab.preference.sample_candidates import sample as run

    done = run(config, out, Engine(engine, workers, gpus_per_worker, ray_address))
    lines = [
        f"{done.candidates:,} candidates for {done.studies - len(done.missing):,} studies in {out / CANDIDATES}",
        f"{done.distinct:,} are distinct within their study; {number(done.mean_words, digits=1)} words on average",
    ]
    if done.truncated:
        lines.append(f"{done.truncated:,} were cut at max_new_tokens: in a pair they may be rejected, not chosen")
    if done.missing:
        lines.append(f"without a readable frontal image: {len(done.missing):,}")
    return Result("\n".join(lines), done)


def judge(config: JudgeConfig, out: Path | None = None, plan: bool = False) -> Result:
    """Give every candidate report a reward by comparing its text with the reference; see RUN/rewards.jsonl.

    Exact findings of a corpus are never used. Run the command again to continue an interrupted run, which sends no
    request to a language model twice; a finished run is left as it is.

    Args:
        out: Run folder.
        plan: Time a few studies, or count the requests of a language model with tokens and price; write and send nothing.
    """
    if plan:
        from cxrlab.preference.judge_candidates import plan_judging

        return planned(plan_judging(config, out))
    out = folder(out)
    from cxrlab.preference.judge_candidates import judge as run

    done = run(config, out)
    rows = [
        ("reward of the first candidate", number(done.first)),
        ("  of the best", number(done.best)),
        ("  of the worst", number(done.worst)),
        ("  mean", number(done.mean)),
        ("studies whose rewards are all equal", _percent(done.equal)),
        ("words per candidate", number(done.mean_words, digits=1)),
        ("  per reference", number(done.reference_words, digits=1)),
        ("correlation of reward and words", number(done.length_correlation)),
    ]
    lost = f", {done.undefined:,} without a reward" if done.undefined else ""
    head = f"{done.candidates:,} candidates of {done.studies:,} studies judged by {done.judge['name']}{lost}"
    notes = [f"{done.undecided:,} comparisons were unreadable and are not counted"] if done.undecided else []
    if done.undefined == done.candidates:
        notes.append("No candidate has a reward, so there can be no pair; requests.jsonl has the judge's answers.")
    return Result("\n".join([head, columns(rows), *notes]), done)


def pair(config: PairConfig, out: Path) -> Result:
    """Make preference pairs from rewards (--rewards) or from readers' choices (--feedback with --data).

    RUN/pairs.jsonl has the chosen and the rejected report of each pair, RUN/unpaired.jsonl the same reports one by one.
    The exit code is 1 when there is no pair.
    """
    from cxrlab.preference.make_pairs import pair as run

    done = run(config, out)
    rows = [
        (label, f"{getattr(done, name):,}")
        for name, label in _PAIRING.items()
        if name not in _RARE or getattr(done, name)
    ]
    rows += [
        ("words per chosen report", number(done.chosen_words, digits=1)),
        ("  per rejected report", number(done.rejected_words, digits=1)),
        ("pairs whose chosen report is longer", _percent(done.chosen_longer)),
        ("mean difference of rewards", number(done.mean_margin)),
    ]
    note = "" if done.kept else "\nno pair to train on; the table shows why"
    return Result(f"pairs by {done.judge}\n{columns(rows)}{note}", done, ok=done.kept > 0)


def _percent(share: float) -> str:
    return number(share) if share != share else f"{100 * share:.1f} %"


def train(
    config: PreferConfig,
    out: Path | None = None,
    seed: int | None = None,
    plan: bool = False,
    hardware: str | None = None,
) -> Result:
    """Align a report model with preference pairs, and compare it with the model before.

    RUN/checkpoint is the aligned model: an adapter on the start, or a whole LLaVA model with --lora-rank 0.
    RUN/preference.json has every metric before and after with the paired difference, the length of reports, the drift
    and closed questions. An interrupted run continues at its last checkpoint and ends with the same weights; a finished
    one is left as it is.

    Args:
        out: Run folder.
        plan: Take a few steps, print time, memory and disk of the whole training with its comparison, and write nothing.
        hardware: With --plan: GPUs that are not here, such as h100-80gb or 8xh100-80gb. Time and memory are then
            estimated from sizes alone, and weights are not needed.
    """
    if gpus := named_gpus(hardware, plan=plan):
        from cxrlab.preference.alignment_plan import estimate_alignment

        return planned(estimate_alignment(seeded(config, seed), gpus))
    if plan:
        from cxrlab.preference.alignment_plan import plan_alignment

        return planned(plan_alignment(seeded(config, seed), out))
    out = folder(out)
    from cxrlab.preference.train import prefer

    done, found = prefer(seeded(config, seed), out)
    lines = [
        f"{done.steps:,} steps on {done.rows:,} {'pairs' if config.loss.kind.paired else 'reports'} ({config.loss.name}), "
        f"loss {done.loss:.3f}; the checkpoint is {out / done.checkpoint}",
        *unused_data(done),
    ]
    if found is not None:
        rows, gaps = [["", "before", "after", "difference [95 %]", ""]], found["difference"]
        for name in dict.fromkeys((*headline_metrics(gaps), "green:rules-lc", "errors.significant")):
            if name in gaps:
                before, after = (found[side][name]["value"] for side in ("before", "after"))
                rows.append(_change(name, {**gaps[name], "before": before, "after": after}, gaps[name]["verdict"]))
        rows.append(_change("words per report", found["length"]["words"]))
        if questions := found.get("questions"):
            rows.append(_change("closed questions answered correctly", questions["accuracy"]))
        note = f"{found['n']} studies of {found['patients']} patients"
        if drift := found.get("drift"):
            note += f"; drift {drift['kl_report']:.2f} nats per report"
        lines += ["", columns(rows), note]
        if warning := no_better_than_start(found["selection"]):
            lines.append(warning)
    return Result("\n".join(lines), {"training": done, "preference": found})


def _change(name: str, found: Mapping[str, Any], verdict: str = "") -> list[str]:
    """A row of the table: before, after, and the difference with its interval."""
    sides = (number(found[side]) for side in ("before", "after"))
    return [name, *sides, measurement(found, "difference", "+"), verdict]
