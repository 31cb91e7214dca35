"""`cxrlab train` (stages 1 to 3), `cxrlab retrieve`, `cxrlab classify` and `cxrlab study`."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.cli.output import Result, columns, number, unused_data
from cxrlab.cli.plans import folder, named_gpus, planned
from cxrlab.evaluation.config import ClassifyConfig, RetrieveConfig
from cxrlab.training.config import AlignConfig, EncoderConfig, FinetuneConfig

if TYPE_CHECKING:
    from cxrlab.training.run_folder import TrainingResult


def train(
    config: EncoderConfig, out: Path | None = None, seed: int | None = None, dry_run: bool = False, plan: bool = False
) -> Result:
    """Train a vision encoder: contrastively with a text encoder, or on findings read from the reports (stage 1).

    By default each image comes close to its report. Each step compares all its pairs with one another, over all
    accumulated batches (--optimisation.accumulate) and processes; images with identical reports are not negatives of each
    other. RUN/checkpoint is a dual encoder, named hf:RUN/checkpoint. With --validation.every, RUN/best is that of the step
    with the lowest loss on the validation split.

    With --objective findings the encoder learns which observations each study has, from the images of --views; labels are
    read from the reports. RUN/checkpoint is a vision encoder for stages 1 to 3, with a label head for `cxrlab classify`,
    and RUN/best that of the step with the highest mean AUROC on the validation split.

    An interrupted run continues at its last checkpoint and ends with the same weights; a finished one is left as it is.

    Args:
        dry_run: Print the image-text pairs by corpus, text and view, and what is left out; train nothing.
        plan: Take a few steps, print time, memory and disk of the whole training, and write nothing.
    """
    if dry_run:
        return counted_pairs(seeded(config, seed))
    if plan:
        from cxrlab.training.training_plan import plan_encoder_training

        return planned(plan_encoder_training(seeded(config, seed), out))
    from cxrlab.training.encoder import train_encoder

    out = folder(out, "--dry-run or --plan")
    done = train_encoder(seeded(config, seed), out)
    if config.objective == "findings":
        return _trained_on_findings(done, out)
    compared, distinct = done.extra["compared"], done.extra["distinct_reports"]
    lines = [
        f"{done.steps:,} steps on {done.rows:,} images with {distinct:,} distinct reports; the checkpoint is "
        f"{out / done.checkpoint}",
        f"loss {done.loss:.3f}; chance among {compared:,} pairs is {math.log(compared):.3f}",
    ]
    return Result("\n".join(lines + _validated(done, out) + unused_data(done)), done)


def _trained_on_findings(done: TrainingResult, out: Path) -> Result:
    labels, best = done.extra["labels"], done.extra.get("best")
    lines = [
        f"{done.steps:,} steps on {done.rows:,} studies with {done.extra['images']:,} images; the checkpoint is "
        f"{out / done.checkpoint}",
        f"loss {done.loss:.3f} over {len(labels)} labels: "
        + ", ".join(f"{name} ({one['positives']:,})" for name, one in labels.items()),
    ]
    if best:
        lines.append(
            f"highest mean AUROC on the validation split {best['auroc']:.3f} after step {best['step']:,} of "
            f"{done.steps:,}: {out / best['checkpoint']}"
        )
    return Result("\n".join(lines + unused_data(done)), done)


def align(
    config: AlignConfig,
    out: Path | None = None,
    seed: int | None = None,
    dry_run: bool = False,
    plan: bool = False,
    hardware: str | None = None,
) -> Result:
    """Train a new projector between a frozen vision encoder and a frozen language model (stage 2).

    The prompt is the image alone, the target the report. RUN/checkpoint is a whole LLaVA model; RUN/history.jsonl has
    the loss. With --validation.every, RUN/best is the model of the step with the lowest loss on the validation split. An
    interrupted run continues at its last checkpoint and ends with the same weights; a finished one is left as it is.

    Args:
        dry_run: Print the image-text pairs by corpus, text and view, and what is left out; train nothing.
        plan: Take a few steps, print time, memory and disk of the whole training, and write nothing.
        hardware: With --plan: GPUs that are not here, such as h100-80gb or 8xh100-80gb. Time and memory are then
            estimated from sizes alone, and weights are not needed.
    """
    if dry_run:
        return counted_pairs(seeded(config, seed))
    if gpus := named_gpus(hardware, plan=plan):
        from cxrlab.training.size_estimate import estimate_report_training

        return planned(estimate_report_training("align", seeded(config, seed), gpus))
    if plan:
        return _planned("align", seeded(config, seed), out)
    from cxrlab.training.align_finetune import align as run

    out = folder(out, "--dry-run or --plan")
    return _trained(run(seeded(config, seed), out), out)


def finetune(
    config: FinetuneConfig,
    out: Path | None = None,
    seed: int | None = None,
    dry_run: bool = False,
    plan: bool = False,
    hardware: str | None = None,
) -> Result:
    """Train projector and language model to generate the report for an image and an indication (stage 3).

    RUN/checkpoint is an adapter that includes the projector, or a whole LLaVA model with --lora-rank 0; its model name
    is hf:RUN/checkpoint. With --validation.every, RUN/best is that of the step with the lowest loss on the validation
    split. An interrupted run continues at its last checkpoint and ends with the same weights; a finished one is left as
    it is.

    Args:
        dry_run: Print the image-text pairs by corpus, text and view, and what is left out; train nothing.
        plan: Take a few steps, print time, memory and disk of the whole training, and write nothing.
        hardware: With --plan: GPUs that are not here, such as h100-80gb or 8xh100-80gb. Time and memory are then
            estimated from sizes alone, and weights are not needed.
    """
    if dry_run:
        return counted_pairs(seeded(config, seed))
    if gpus := named_gpus(hardware, plan=plan):
        from cxrlab.training.size_estimate import estimate_report_training

        return planned(estimate_report_training("finetune", seeded(config, seed), gpus))
    if plan:
        return _planned("finetune", seeded(config, seed), out)
    from cxrlab.training.align_finetune import finetune as run

    out = folder(out, "--dry-run or --plan")
    return _trained(run(seeded(config, seed), out), out)


def study(
    study: str, out: Path | None = None, quick: bool = False, dry_run: bool = False, plan: bool = False
) -> Result:
    """Run a whole experiment and end with a page.

    A stopped study is continued part by part; a finished one with the same settings is kept.

    Args:
        study: YAML file, or the name of one in configs/studies (ablations_phantom, llava-rad).
        out: Run folder; runs/NAME when left out.
        quick: Use the small sizes under 'quick' in the file: to see that it works, not for its results.
        dry_run: Run nothing: list every part with its state, and every missing input; the exit code is then 1 when an
            input is missing or damaged, or a count is not as expected.
        plan: Time one run of each kind and variant, print what all runs take, name those that need files which the study
            makes first, and write nothing.
    """
    from cxrlab.studies.run_study import plan_named_study, run_study

    if plan:
        return planned(plan_named_study(study, out, quick))

    found = run_study(study, out, quick, dry_run)
    if not isinstance(found, list):
        return Result(str(found), {"path": found.as_posix()})
    ok = not any(row["state"] in ("missing", "differs", "error") for row in found)
    text = columns([(row["what"], row["state"], row["name"]) for row in found])
    # Never wrapped, so that each can be pasted.
    if commands := [row["command"] for row in found if "command" in row and row["state"] not in ("done", "differs")]:
        text += "\n\nCommands of the steps that are not done, in order:\n" + "\n".join(commands)
    return Result(text, found, ok=ok)


def seeded(config: Any, seed: int | None) -> Any:
    """The config with this optimisation seed; unchanged when it is None."""
    return config if seed is None else replace(config, optimisation=replace(config.optimisation, seed=seed))


def counted_pairs(config: EncoderConfig | AlignConfig | FinetuneConfig) -> Result:
    """The image-text pairs that a training would learn, and what it would leave out."""
    from cxrlab.training.samples import pair_table, read_sources

    table = pair_table(read_sources(config))
    rows = [
        ("corpus", "text", "view", "pairs"),
        *((row.corpus, row.text, row.view, f"{row.pairs:,}") for row in table.rows),
    ]
    lines = [columns(rows), f"{table.pairs:,} pairs of {table.images:,} images of {table.studies:,} studies"]
    lines += [
        f"not learnt, {one.corpus}: {one.reason} ({one.studies:,} studies, {one.images:,} images)"
        for one in table.unused
    ]
    return Result("\n".join(lines), table)


def _planned(stage: str, config: AlignConfig | FinetuneConfig, out: Path | None) -> Result:
    from cxrlab.training.training_plan import plan_report_training

    return planned(plan_report_training(stage, config, out))


def _trained(done: TrainingResult, out: Path) -> Result:
    lines = [
        f"{done.steps:,} steps on {done.rows:,} samples, loss {done.loss:.3f}; the checkpoint is "
        f"{out / done.checkpoint}",
        f"trained {done.trained_parameters:,} of {done.parameters:,} weights",
    ]
    return Result("\n".join(lines + _validated(done, out) + unused_data(done)), done)


def _validated(done: TrainingResult, out: Path) -> list[str]:
    found = done.extra.get("validation", {})
    if "step" not in found:
        return []
    return [
        f"lowest validation loss {found['loss']:.3f} ({found['samples']:,} samples) after step {found['step']:,} of "
        f"{done.steps:,}: {out / found['checkpoint']}"
    ]


def retrieve(config: RetrieveConfig, out: Path) -> Result:
    """Find the report of each image among all reports, and the image of each report.

    RUN/retrieval.json has recall at 1, 5 and 10 in both directions with intervals by patient, beside two baselines: a
    random order (chance) and the best order that ignores the query (fixed order). RUN/ranks.jsonl has the rank of every query,
    RUN/zero_shot.json zero-shot classification. A report with the same words counts as found; on phantoms, one with the
    same exact findings is counted separately. An interrupted run is continued.
    """
    from cxrlab.evaluation.retrieve import RETRIEVAL
    from cxrlab.evaluation.retrieve import retrieve as run

    found = run(config, out)
    lines = [f"{found.gallery:,} images and reports ({found.distinct_texts:,} distinct) in {out / RETRIEVAL}"]
    for direction, kinds in found.recalls.items():
        for kind, by_k in kinds.items():
            lines.append(f"{direction.replace('_', ' ')}, same {kind}")
            rows = [
                (f"  {name}", *map(number, (one.value, one.low, one.high, one.chance, one.fixed_order)))
                for name, one in by_k.items()
            ]
            lines.append(columns([("", "found", "low", "high", "chance", "fixed order"), *rows]))
    if found.zero_shot is not None:
        means = {"labels": found.zero_shot.mean_labels, "observations": found.zero_shot.mean_observations}
        parts = [f"mean AUROC over {mean.n} {kind} {mean.value:.3f}" for kind, mean in means.items() if mean.n]
        lines.append("zero-shot: " + (", ".join(parts) or "no label with both positive and negative studies"))
    return Result("\n".join(lines), found)


def classify(config: ClassifyConfig, out: Path) -> Result:
    """Measure which observations an encoder finds in images: area under the ROC curve of each label, and calibration.

    The encoder is a result of `cxrlab train encoder --objective findings`. Labels come from exact findings, from the
    reports as `cxrlab read` finds them, or from the corpus's label table. RUN/classification.json has the areas with
    intervals by patient and the expected calibration error, with --calibrate also after temperature scaling;
    RUN/probabilities.jsonl has the probabilities of each study. With --probabilities, those of any model or of several
    folds are measured. An interrupted run is continued.
    """
    from cxrlab.evaluation.classify import CLASSIFICATION
    from cxrlab.evaluation.classify import classify as run

    found = run(config, out)
    sources = ", ".join(f"{name}: {count:,}" for name, count in found.truth.items())
    lines = [f"{found.studies:,} studies (labels from {sources}) in {out / CLASSIFICATION}"]
    rows = [
        (f"  {name}", *map(number, (one.value, one.low, one.high)), f"{one.positives:,}", f"{one.negatives:,}")
        for name, one in found.labels.items()
    ]
    lines.append(columns([("", "AUROC", "low", "high", "positive", "negative"), *rows]))
    lines.append(f"mean AUROC over {len(rows)} labels {found.mean_auroc:.3f}")
    for shown, one in (("", found.calibration), (f" at temperature {found.temperature or 1:.2f}", found.calibrated)):
        if one is not None:
            lines.append(f"calibration error{shown} {one.value:.3f} [{one.low:.3f}, {one.high:.3f}]")
    if found.rare:
        few = ", ".join(f"{name} ({count})" for name, count in found.rare.items())
        lines.append(f"not measured, fewer than {config.min_positives} positive studies: {few}")
    lines += [f"left out: {reason} ({count:,} studies)" for reason, count in found.left_out.items()]
    return Result("\n".join(lines), found)
