"""`cxrlab generate`, `score`, `certify`, `compare`, `metrics`, `explain` and `pointing`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from cxrlab.cli.output import Result, columns
from cxrlab.cli.plans import folder, named_gpus, planned
from cxrlab.core.errors import ConfigError
from cxrlab.core.headline_metrics import ARROWS
from cxrlab.core.runs import state
from cxrlab.core.tables import Column, Interval, Table
from cxrlab.core.workers import Engine
from cxrlab.evaluation.config import (
    CertifyConfig,
    ExplainConfig,
    GenerateConfig,
    PointingConfig,
    ScoreConfig,
    ValidateConfig,
)


def generate(
    config: GenerateConfig,
    out: Path | None = None,
    plan: bool = False,
    hardware: str | None = None,
    engine: Literal["local", "ray"] = "local",
    workers: int = 0,
    gpus_per_worker: float | None = None,
    ray_address: str | None = None,
) -> Result:
    """Generate a report for every study of a split; see RUN/predictions.jsonl.

    --unit image generates one for every PA, AP and frontal image, as LLaVA-Rad is evaluated (2,461 pairs of MIMIC-CXR):
    'cxrlab score' reads their ids, study#k, and computes intervals by patient.

    Run the command again to continue an interrupted run; a finished one is left as it is. A study whose image is
    missing or unreadable, or for which the model refuses, gets no prediction: it is listed in RUN/summary.json, and the
    command fails with their number unless --allow-missing is given. Up to --control-studies studies are also given to
    the model with control images (noise, blank, swapped), which measures image dependence; a guarded server takes these
    for an attack, so give it --control-studies 0.

    Args:
        out: Run folder.
        plan: Generate two batches, print how long the whole run will take and in how much memory, and write nothing.
        hardware: With --plan: GPUs that are not here, such as h100-80gb or 8xh100-80gb. Time and memory are then
            estimated from sizes alone, and weights are not needed.
    """
    if gpus := named_gpus(hardware, plan=plan):
        from cxrlab.evaluation.generation_plan import estimate_generation

        return planned(estimate_generation(config, gpus))
    if plan:
        if engine != "local":
            raise ConfigError("--plan measures one process; leave out --engine, and divide the time by the workers.")
        from cxrlab.evaluation.generation_plan import plan_generation

        return planned(plan_generation(config, out))
    out = folder(out)
    from cxrlab.evaluation.generate import PREDICTIONS, SUMMARY
    from cxrlab.evaluation.generate import generate as run

    done = run(config, out, Engine(engine, workers, gpus_per_worker, ray_address))
    missing = f"; without a report: {len(done.missing):,}, see {out / SUMMARY}" if done.missing else ""
    refused = [kind for kind, count in done.controls.items() if not count] if config.control_studies else []
    controls = f"; no answers to control images: {', '.join(refused)}" if refused else ""
    left_out = f"; studies without a frontal image: {done.without_frontal:,}" if done.without_frontal else ""
    cautions = "".join(f"\ncaution: {one}" for one in done.cautions)
    return Result(f"{done.predictions:,} reports in {out / PREDICTIONS}{left_out}{missing}{controls}{cautions}", done)


def score(
    config: ScoreConfig,
    out: Path | None = None,
    write_rexrank: Path | None = None,
    plan: bool = False,
    engine: Literal["local", "ray"] = "local",
    gpus_per_worker: float | None = None,
    ray_address: str | None = None,
) -> Result:
    """Score predictions against references: every metric with its interval, beside controls that ignore the image.

    References are a corpus folder; a CSV, TSV, JSONL, JSON, Excel or Parquet file with id and report; or a text file with
    one report per line. Predictions are a run folder or a file of the same kinds. One file with both is enough:
    cxrlab score FILE.csv, with columns such as id, reference and candidate; --columns names others. Rows are matched by id (id,
    study_id, dicom_id, accession, …) or another column that both files share; row by row only if there is none, or with
    --by-row. A reference without a prediction is an error, unless --allow-missing scores it as an empty report; a
    prediction without a reference is always an error.

    --metrics default,chexprompt:http://127.0.0.1:8000/v1#MODEL adds a language model as judge. Its answers are kept in
    the run folder: an interrupted run continues when the command is run again, and no request is sent twice.

    Args:
        out: Run folder for scores.json, per_study.jsonl and what compare needs; without it nothing is kept.
        write_rexrank: JSON file to write with the scored predictions in the form of the leaderboard ReXrank; the
            references must be a corpus or a JSON of ReXrank.
        plan: Score a few pairs, count the requests of judges with their tokens and price, and write and send nothing.
    """
    if plan:
        if engine != "local":
            raise ConfigError("--plan measures one process; leave out --engine, and divide the time by the workers.")
        from cxrlab.evaluation.score_plan import plan_score

        return planned(plan_score(config, out))
    from cxrlab.evaluation.metric_presets import PRESETS
    from cxrlab.evaluation.score import run_score
    from cxrlab.evaluation.score_tables import score_parts

    note = _finished_before(out)
    if write_rexrank is not None:
        _write_rexrank(write_rexrank, config)
        note.append(f"predictions in the form of ReXrank: {write_rexrank}")
    found = run_score(config, out, Engine(engine, config.workers * (engine == "ray"), gpus_per_worker, ray_address))
    preset = PRESETS[config.preset] if config.preset else ()
    rows = [row.resolve(vars(config), tuple(found["metrics"])) for row in preset]
    everything = config.all or bool(config.metrics)
    parts = score_parts(found, config.level, everything=everything, kept=out is not None, preset=rows)
    return Result([*parts, *note], {**found, "preset": rows} if rows else found)


def _write_rexrank(path: Path, config: ScoreConfig) -> None:
    """Write the predictions that are scored; before scoring, so that references of another kind cost no time."""
    from cxrlab.evaluation.rexrank import write_rexrank
    from cxrlab.evaluation.score_inputs import load_inputs

    inputs = load_inputs(config.references, config.predictions, **config.matching)
    write_rexrank(path, config.references, {pair.id: pair.candidate for pair in inputs.pairs})


def certify(config: CertifyConfig, out: Path | None = None, fail_on: Literal["caution", "severe"] = "severe") -> Result:
    """Test whether a prediction file is what it claims to be: the verdict in words first, then every check.

    The checks: matched ids; different texts; normal reports; gains over reports dealt to other patients, one constant
    report and retrieval; label prevalence; copies of references and training reports; image dependence; sample size. A
    check that lacks its input is listed as not tested. Predictions and references are read as by 'cxrlab score'.

    Args:
        out: Run folder for certificate.json, evidence.jsonl, page.html and what score writes; without it nothing is kept.
        fail_on: Severity from which the exit code is 1.
    """
    from cxrlab.evaluation.certify import run_certify

    note = _finished_before(out)
    found = run_certify(config, out)
    if out is not None:
        from cxrlab.render.page import PAGE, write_page

        page = out / PAGE
        if not page.is_file():
            write_page([out], title="Certificate of predictions")
        note.append(f"the page: {page}")
    return Result([*found.parts(), *note], found.to_json(), ok=not found.fails(fail_on))


def compare(
    runs: list[Path],
    noninferior: tuple[str, ...] = (),
    metrics: tuple[str, ...] = (),
    out: Path | None = None,
    minimum_patients: int = 30,
    trials: int = 10_000,
    seed: int = 7,
) -> Result:
    """Compare scored runs study by study, clustered by patient; the first run is the baseline.

    The exit code is 1 when a non-inferiority gate fails.

    Args:
        runs: Two or more folders written by 'cxrlab score --out' with the same references.
        noninferior: METRIC=MARGIN: every other run must be worse than the baseline by less than the margin; otherwise
            the exit code is 1.
        metrics: Names, patterns or groups of metrics; Holm's correction counts exactly these, so fewer metrics give
            smaller p values. When left out, the headline metrics and judges; 'all' for every metric that the runs share.
        out: Run folder for comparison.json; without it nothing is kept.
        minimum_patients: Minimum number of patients for non-inferiority; with fewer the exit code is 1.
        trials: Permutations per p value.
        seed: Seed of permutations and resamples.
    """
    from cxrlab.evaluation.compare import compare as compare_runs

    if trials < 1 or seed < 0:
        raise ConfigError(
            f"trials={trials}, seed={seed} is not usable; give --trials of at least 1 and --seed of at least 0."
        )
    found = compare_runs(runs, noninferior=gates(noninferior), seed=seed, out=out, metrics=metrics, trials=trials,
                         minimum_patients=minimum_patients)  # fmt: skip
    return Result(found.parts(), found, ok=found.ok)


def gates(words: tuple[str, ...]) -> dict[str, float]:
    """`METRIC=MARGIN` as metric → margin; a margin must be a number above 0."""
    found: dict[str, float] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.rpartition("="))
        try:
            margin = float(text)
        except ValueError:
            margin = -1.0
        if not equals or not name or not 0 < margin < float("inf"):
            raise ConfigError(
                f"--noninferior is '{word}'; write METRIC=MARGIN with a margin above 0: clinical:rules=0.02."
            )
        if name in found:
            raise ConfigError(f"--noninferior names '{name}' twice; give one margin for each metric.")
        found[name] = margin
    return found


def validate(config: ValidateConfig, out: Path | None = None) -> Result:
    """Validate the metrics themselves: against radiologists' judgements, ranking cases, or reports with known errors.

    radpref, radjudge and rexval read the folder of that benchmark; phantom makes its own reports from the seed.
    Language models as judges are validated like metrics: --metrics errors.total,chexprompt:A,chexprompt:B.

    Args:
        out: Run folder for validation.json; without it nothing is kept.
    """
    from cxrlab.evaluation.validate_metrics import run_validation, validation_parts

    note = _finished_before(out)
    found = run_validation(config, out)
    return Result([*validation_parts(found), *note], found)


def list_metrics(metrics: tuple[str, ...] = (), all: bool = False, long: bool = False) -> Result:
    """List the metrics: direction, range, value for identical reports, when undefined, what they need.

    The text lists the default metrics and those that need a path of yours; --json always lists all.

    Args:
        metrics: Names, patterns or families to list.
        all: List every metric.
        long: Also show when a metric is undefined, deviations from the published code, and the signature.
    """
    from cxrlab.evaluation.select_metrics import describe_metrics

    found = describe_metrics(metrics or None)
    listed = [row for row in found if all or metrics or row["default"] or row["needs"]]
    choosing = all or bool(metrics)  # else every metric that needs nothing is on
    rows = []
    for row in listed:
        about = f"{row['about']} (needs {row['needs']})" if row["needs"] else row["about"]
        shown = (f"{row['name']} {ARROWS[row['direction']]}", _range(row["range"]), about)
        data = (row["name"], row["direction"], *row["range"], row["needs"], row["about"])
        rows.append((*shown, *data, row["default"], row["identity"], *(row[key] for key in _LONG)))
    columns = (
        *(Column(name, only="text") for name in ("metric", "range", "about")),
        *(Column(name, only="data") for name in ("metric", "direction", "lowest", "highest", "needs", "about")),
        Column("on", "default", only="" if choosing else "data"),
        Column("self", "identity", only="" if long else "data", write=lambda x: "" if x is None else f"{x:.3g}"),
        *(Column(key, only="" if long else "data") for key in _LONG),
    )
    more = [f"{len(found) - len(listed)} more with --all"] if len(listed) < len(found) else []
    return Result([Table(columns, tuple(rows)), *more], found)


_LONG = ("undefined", "quirk", "signature")


def _range(bounds: Sequence[float | None]) -> str:
    ends = zip(("-∞", "∞"), bounds, strict=True)
    return " to ".join(none if bound is None else f"{bound:g}" for none, bound in ends)


def _finished_before(out: Path | None) -> list[str]:
    """The last line where the run was finished before, so that its numbers are not taken for new ones."""
    if out is None or state(out) != "finished":
        return []
    return [f"{out} was finished before and is unchanged; to compute again, choose another folder with --out"]


def explain(config: ExplainConfig, out: Path | None = None, plan: bool = False) -> Result:
    """Attention and gradient maps of a generated word, as overlays on the image and as arrays.

    Attention maps are those of the position that generates the word, to the patches of the image; gradient maps show
    which pixels change the word's probability. RUN/explain has an overlay and the array of each word, RUN/words.png all
    overlays on one sheet, RUN/explain.json their description.

    Args:
        out: Run folder.
        plan: Generate the report and explain two of its words, print how long all take, and write nothing.
    """
    if plan:
        from cxrlab.evaluation.explain import plan_explanation

        return planned(plan_explanation(config, out))
    out = folder(out)
    from cxrlab.evaluation.explain import explain as run

    done = run(config, out)
    lines = [(word.word, f"{len(word.spans)} x", out / word.picture) for word in done.words]
    count = "1 word" if len(done.words) == 1 else f"{len(done.words)} words"
    return Result(f"{columns(lines)}\n{count} explained; see {out}", done)


def pointing(config: PointingConfig, out: Path | None = None, plan: bool = False) -> Result:
    """The pointing game: does the maximum of a word's map lie on the finding that the word names?

    Needs a corpus with exact masks. RUN/pointing.json has for each map the share of hits with its interval by patient,
    beside that of a random cell, and the share of the map inside the mask, beside the mask's share of the image.

    Args:
        out: Run folder.
        plan: Score a batch of studies, print how long the whole run takes and in how much memory, and write nothing.
    """
    if plan:
        from cxrlab.evaluation.pointing import plan_pointing

        return planned(plan_pointing(config, out))
    out = folder(out)
    from cxrlab.evaluation.pointing import pointing as run

    table = run(config, out)
    rows = [
        (
            name,
            Interval(row.localised["hit"].value, row.localised["hit"].low, row.localised["hit"].high),
            *(row.localised[key].value for key in ("chance", "mass", "area")),
            row.localised["hit"].n,
        )
        for name, row in table.maps.items()
    ]
    names = ("chance", "mass", "area", "findings")
    head = (Column("map"), Column("hits [95 %]", "hits"), *map(Column, names))
    note = (
        f"localised findings (mask at most {table.localised:.0%} of the image) that the {table.report} report states: "
        f"{table.reported} of {table.present} findings on {table.studies} images are stated"
    )
    return Result([Table(head, tuple(rows)), note], table)
