"""`cxrlab robustness`, `harden` and `leaderboard`: measure adversarial robustness, train for it, and rank models by it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from cxrlab.cli.output import Result, columns, measurement, number, unused_data
from cxrlab.cli.plans import folder, named_gpus, planned
from cxrlab.core.errors import ConfigError
from cxrlab.core.workers import Engine
from cxrlab.robustness.config import HardenConfig, RobustnessConfig
from cxrlab.studies.leaderboard import LeaderboardConfig

# Quantities of the terminal's table, with their headings.
_COLUMNS = {
    "closed_questions.accuracy": "answers right",
    "closed_questions.confidence": "confidence",
    "findings.f1": "findings F1",
    "errors.significant": "significant errors",
    "flip_rate": "reports changed",
}


def robustness(
    config: RobustnessConfig,
    out: Path | None = None,
    plan: bool = False,
    hardware: str | None = None,
    engine: Literal["local", "ray"] = "local",
    workers: int = 0,
    gpus_per_worker: float | None = None,
    ray_address: str | None = None,
) -> Result:
    """Attack the images of a model that you own or may test; measure how its reports, answers and confidence change.

    RUN/robustness.json has every quantity on clean and perturbed images with intervals, also by label;
    RUN/answers.jsonl the outputs for every image. With --versus, models are compared on the same images and budgets,
    and each is tested on the images made for the other. 'cxrlab page RUN' shows everything. Run the command again to
    continue an interrupted audit.

    Args:
        out: Run folder.
        plan: Time one batch under every attack and corruption, print how long the whole audit takes, and write nothing.
        hardware: With --plan: GPUs that are not here, such as h100-80gb or 8xh100-80gb. Time and memory are then
            estimated from sizes alone, and weights are not needed.
    """
    if gpus := named_gpus(hardware, plan=plan):
        from cxrlab.robustness.audit_plan import estimate_audit

        return planned(estimate_audit(config, gpus))
    if plan:
        if engine != "local":
            raise ConfigError("--plan measures one process; leave out --engine, and divide the time by the workers.")
        from cxrlab.robustness.audit_plan import plan_audit

        return planned(plan_audit(config, out))
    out = folder(out)
    from cxrlab.robustness.audit import audit

    found = audit(config, out, Engine(engine, workers, gpus_per_worker, ray_address))
    parts = [found["threat"], *(f"! {line}" for line in found["warnings"])]
    for name, model in found["models"].items():
        clean = model["clean"]
        keys = [key for key in _COLUMNS if key == "flip_rate" or clean.get(key, {}).get("value") is not None]
        worst = {f"worst@{size}": row for size, row in model["worst"].items()}
        conditions = {"clean": clean, **model["attacks"], **worst, **model["corruptions"]}
        rows = [[condition, *(measurement(row.get(key)) for key in keys)] for condition, row in conditions.items()]
        parts.append(columns([[name, *(_COLUMNS[key] for key in keys)], *rows]))
    for name, model in found["models"].items():
        if certified := model.get("certified"):
            rows = [[name, "certified right"]]
            rows += [[f"within {size}", measurement(row)] for size, row in certified["right_within"].items()]
            parts.append(columns([*rows, ["no answer", measurement(certified["abstained"])]]))
    for name, row in found.get("input_defences", {}).items():
        table = [[name, "of", "undefended", "not adaptive", "adaptive", "adaptive - not"]]
        for condition, measures in {"clean": row["clean"], **row["conditions"]}.items():
            for metric in ("findings.f1", "report.loss", "closed_questions.accuracy", "flip_rate"):
                if (one := measures.get(metric)) and condition == "clean":
                    behind = f"{number(one['defended'])} ({measurement(one['difference'], 'value', '+')})"
                    table.append([condition, metric, number(one["undefended"]), behind, "", ""])
                elif one:
                    values = [measurement(one[kind]) for kind in ("undefended", "non_adaptive", "adaptive")]
                    table.append([condition, metric, *values, measurement(one["difference"], "value", "+")])
        parts.append(columns(table))
    for pair in found["comparison"].values():
        rows = [["b - a", "of", "a", "b", "difference", "p (Holm)", "of drops", "p (Holm)"]]
        for condition, row in pair["conditions"].items():
            for metric in ("findings.f1", "closed_questions.accuracy", "flip_rate"):
                gap = row.get(metric) or {}
                if gap.get("a") is not None and gap.get("b") is not None:
                    drop = gap.get("drop") or {}
                    sides = [number(gap["a"]), number(gap["b"])]
                    difference = [measurement(gap, "difference", "+"), number(gap.get("p_holm"))]
                    drops = [measurement(drop, "value", "+"), number(drop.get("p_holm"))]
                    rows.append([condition, metric, *sides, *difference, *drops])
        names = "; ".join(f"{key}: {name}" for key, name in (pair.get("names") or {}).items())
        parts.append(f"{names}\n{pair.get('sentence', '')}\n{columns(rows)}")
    return Result("\n\n".join(part for part in parts if part), found)


def harden(config: HardenConfig, out: Path | None = None, plan: bool = False) -> Result:
    """Fine-tune a model's vision encoder so that attacked images give the features of the clean ones.

    Training uses images only; projector and language model stay unchanged. RUN/checkpoint is the whole model, named
    hf:RUN/checkpoint. RUN/harden.json has how far an attack moves the features of held-out images before and after, and
    how far those of clean images have moved. To measure the effect on reports, run generate, score and compare on both
    models. An interrupted run continues at its last checkpoint and ends with the same weights; a finished one is left
    as it is.

    Args:
        out: Run folder.
        plan: Take a few steps and measure a batch, print time, memory and disk of the whole training, and write nothing.
    """
    if plan:
        from cxrlab.robustness.harden import plan_hardening

        return planned(plan_hardening(config, out))
    out = folder(out)
    from cxrlab.robustness.harden import harden as run

    done, found = run(config, out)
    lines = [
        f"{done.steps:,} steps on {done.rows:,} images against changes of up to {config.budget.label} per pixel; the "
        f"checkpoint is {out / done.checkpoint}",
        f"trained {done.trained_parameters:,} of {done.parameters:,} weights",
        *unused_data(done),
    ]
    if measured := found["measured"]:
        attacked, attack = measured["attacked"], measured["attack"]
        rows = [
            ["features, against clean ones before", "distance²", "of their length²", "cosine"],
            _distances("attacked, before", attacked["before"]),
            _distances("attacked, after", attacked["after"]),
            _distances("clean, after", measured["clean"]),
        ]
        lines.append(
            f"\n{columns(rows)}\nmeans over {measured['n']} images of the {measured['split']} split; PGD with "
            f"{attack['steps']} steps at {attack['eps']}"
        )
    return Result("\n".join(lines), {"training": done, "harden": found})


def leaderboard(config: LeaderboardConfig, out: Path, models: tuple[str, ...] = ()) -> Result:
    """Audit models under one fixed protocol, and rank them in a table to which others can add rows.

    The protocol fixes corpus, seed, radii, attacks and metrics; the shipped one draws phantoms. RUN/leaderboard.json, .md
    and .html are the table, RUN/rows/*.json its rows: send yours to others, and add theirs with --rows FILE. A row carries
    the hashes of protocol, images and weights; one of another protocol or of other images is refused. Run the command
    again to continue, with further models to add them, or with none to write the table anew.

    Args:
        models: Names of models with weights, such as builtin:reporter, hf:FOLDER, smoothed:0.1:hf:FOLDER or
            defended:jpeg:50:hf:FOLDER; none to write the table from its rows.
    """
    from cxrlab.studies.leaderboard import make_leaderboard, read_protocol, table_of

    found = make_leaderboard(models, config, out)
    table = table_of(found, read_protocol(config.protocol))
    return Result([table, f"the table: {out / 'leaderboard.html'}"], found)


def _distances(name: str, values: Mapping[str, float]) -> list[str]:
    return [name, f"{values['distance']:.4g}", f"{values['share']:.3f}", f"{values['cosine']:.3f}"]
