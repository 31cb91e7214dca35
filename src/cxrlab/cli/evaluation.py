"""`cxrlab generate`, `score`, `certify`, `compare`, `metrics`, `explain` and `pointing`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from cxrlab.cli.output import Result, columns, measurement, number
from cxrlab.core.errors import ConfigError
from cxrlab.core.metric_names import ARROWS, best_floor, headline_metrics
from cxrlab.core.runs import state
from cxrlab.evaluation.config import (
    CertifyConfig,
    ExplainConfig,
    GenerateConfig,
    PointingConfig,
    ScoreConfig,
    ValidateConfig,
)


def generate(config: GenerateConfig, out: Path) -> Result:
    """Generate a report for every study of a split; see RUN/predictions.jsonl.

    Run the command again to continue an interrupted run; a finished one is left as it is. A study whose image is
    missing or unreadable, or for which the model refuses, gets no prediction: it is listed in RUN/summary.json, and the
    command fails with their number unless --allow-missing is given. Up to --control-studies studies are also given to
    the model with control images (noise, blank, swapped), which measures image dependence; a guarded server takes these
    for an attack, so give it --control-studies 0.
    """
    from cxrlab.evaluation.generate import PREDICTIONS, SUMMARY
    from cxrlab.evaluation.generate import generate as run

    done = run(config, out)
    missing = f"; without a report: {len(done.missing):,}, see {out / SUMMARY}" if done.missing else ""
    refused = [kind for kind, count in done.controls.items() if not count] if config.control_studies else []
    controls = f"; no answers to control images: {', '.join(refused)}" if refused else ""
    cautions = "".join(f"\ncaution: {one}" for one in done.cautions)
    return Result(f"{done.predictions:,} reports in {out / PREDICTIONS}{missing}{controls}{cautions}", done)


def score(config: ScoreConfig, out: Path | None = None) -> Result:
    """Score predictions against references: every metric with its interval, beside controls that ignore the image.

    References are a corpus folder; a JSONL, JSON, CSV or TSV file with id and report; or a text file with one report
    per line. Predictions are a run folder or a file of the same kinds. One file with both is enough: cxrlab score
    FILE.csv, with columns such as id, reference and candidate; --columns names others. Rows are matched by id (id,
    study_id, dicom_id, accession, …) or another column that both files share; row by row only if there is none, or with
    --by-row. A reference without a prediction is an error, unless --allow-missing scores it as an empty report; a
    prediction without a reference is always an error.

    --metrics default,chexprompt:http://127.0.0.1:8000/v1#MODEL adds a language model as judge. Its answers are kept in
    the run folder: an interrupted run continues when the command is run again, and no request is sent twice.

    Args:
        out: Run folder for scores.json, per_study.jsonl and what compare needs; without it nothing is kept.
    """
    from cxrlab.evaluation.score import run_score

    note = _finished_before(out)
    found = run_score(config, out)
    table = score_table(found, config.level, everything=config.all or bool(config.metrics), kept=out is not None)
    return Result(table + note, found)


def score_table(scores: Mapping[str, Any], level: float, *, everything: bool = True, kept: bool = True) -> str:
    """The table of scores; a star marks what a control reaches too.

    Args:
        scores: Content of scores.json.
        level: Of the intervals.
        everything: Show every metric, not the headline metrics only.
        kept: Whether scores.json was written, so that the text can refer to it.
    """
    from cxrlab.evaluation.select_metrics import format_unreadable_answers

    statuses = ", ".join(f"{count:,} {status}" for status, count in scores["statuses"].items())
    lines = [f"{scores['n']:,} {'pair' if scores['n'] == 1 else 'pairs'}: {statuses}"]
    if matching := scores.get("matching"):
        sides = [matching["references"], matching["predictions"]]
        sizes = f"{sides[0]['rows']:,} references and {sides[1]['rows']:,} predictions"
        ids = list(dict.fromkeys(f"'{side['id']}'" for side in sides if side["id"] is not None))
        how = {
            "file": f"within one file: {matching['matched']:,} {'row' if matching['matched'] == 1 else 'rows'}",
            "row": f"row by row, not by id: {sizes}",
            "id": f"by {' = '.join(ids) or 'id'}: {sizes}, {matching['matched']:,} matched",
        }[matching["by"]]
        reports = [", ".join(f"'{name}'" for name in side["report"]) for side in sides]
        lines.append(f"matched {how}" + (f" (reports: {reports[0]} against {reports[1]})" if all(reports) else ""))
    names = list(scores["metrics"])
    listed = names if everything else headline_metrics(names)
    rows: list[list[Any]] = [["metric", "", f"value [{100 * level:g} %]", "best floor", "n", "undefined"]]
    reached = False
    for name in listed:
        score, best = scores["metrics"][name], ""
        if floor := best_floor(name, score["direction"], scores["floors"]):
            control, value = floor
            beaten = score["value"] is not None and (
                value >= score["value"] if score["direction"] == "higher" else value <= score["value"]
            )
            best = f"{number(value)} {control}{' *' if beaten else ''}"
            reached |= beaten
        counts = [f"{score['n']:,}", f"{score['undefined']:,}"]
        rows.append([name, ARROWS[score["direction"]], measurement(score), best, *counts])
    notes = [*(f"caution: {one}" for one in scores.get("cautions", ())), *scores.get("notes", ())]
    if len(listed) < len(names):
        where = " in scores.json" if kept else ""
        notes.append(f"{len(names) - len(listed)} more metrics{where}; --metrics default shows them all here")
    if reached:
        notes.append("* a control that never sees an image scores at least as well: do not rely on this number alone")
    notes += format_unreadable_answers(scores.get("judges", {}))
    if dependence := (scores.get("controls") or {}).get("image_dependence"):
        name, right = dependence["metric"], dependence["right"]
        table = [["image", name, f"right is better by [{100 * level:g} %]", "same words"]]
        table.append(["right", measurement(right[name]), "", ""])
        for kind, wrong in dependence["wrong"].items():
            unchanged = f"{100 * wrong['unchanged']:.0f} %"
            table.append([kind, number(wrong["metrics"][name]), measurement(wrong["difference"]), unchanged])
        notes += ["", columns(table), dependence["sentence"]]
    else:
        notes.append("Image dependence not tested: no predictions for control images.")
    return "\n".join([*lines, columns(rows), *notes])


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
    indent = " " * 12
    lines = [
        textwrap.fill(f"{check.verdict:12}{check.name}: {check.sentence}", 110, subsequent_indent=indent)
        for check in found.checks
    ]
    if out is not None:
        from cxrlab.render.page import PAGE, write_page

        page = out / PAGE
        if not page.is_file():
            write_page([out], title="Certificate of predictions")
        lines.append(f"the page: {page}")
    headline = textwrap.fill(f"{found.severity.upper()}: {found.headline}", 110)
    return Result("\n".join([headline, "", *lines]) + note, found.to_json(), ok=not found.fails(fail_on))


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
    found = compare_runs(runs, gates(noninferior), seed=seed, out=out, metrics=metrics, trials=trials,
                         minimum_patients=minimum_patients)  # fmt: skip
    return Result(found.text(), found, ok=found.ok)


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
    from cxrlab.evaluation.validate import format_validation, run_validation

    note = _finished_before(out)
    found = run_validation(config, out)
    return Result(format_validation(found) + note, found)


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
    keys = ["name", "direction", "range", "identity", "default", "needs", "about"]
    keys += ["undefined", "quirk", "signature"] if long else []
    head = {"default": "on", "identity": "self"}
    rows = [[head.get(key, key) for key in keys], *([_cell(item[key]) for key in keys] for item in listed)]
    more = [f"{len(found) - len(listed)} more with --all"] if len(listed) < len(found) else []
    return Result("\n".join([columns(rows), *more]), found)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, (list, tuple)):
        ends = zip(("-∞", "∞"), value, strict=True)
        return " to ".join(none if bound is None else f"{bound:g}" for none, bound in ends)
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)


def _finished_before(out: Path | None) -> str:
    """The last line where the run was finished before, so that its numbers are not taken for new ones."""
    if out is None or state(out) != "finished":
        return ""
    return f"\n{out} was finished before and is unchanged; to compute again, choose another folder with --out"


def explain(config: ExplainConfig, out: Path) -> Result:
    """Show on an image where the model looked when it generated a word, as overlays and as arrays.

    Attention maps are those of the position that generates the word, to the patches of the image; gradient maps show
    which pixels change the word's probability. RUN/explain has an overlay and the array of each word, RUN/words.png all
    overlays on one sheet, RUN/explain.json their description.
    """
    from cxrlab.evaluation.explain import explain as run

    done = run(config, out)
    lines = [(word.word, f"{len(word.spans)} x", out / word.picture) for word in done.words]
    count = "1 word" if len(done.words) == 1 else f"{len(done.words)} words"
    return Result(f"{columns(lines)}\n{count} explained; see {out}", done)


def pointing(config: PointingConfig, out: Path) -> Result:
    """The pointing game: does the maximum of a word's map lie on the finding that the word names?

    Needs a corpus with exact masks. RUN/pointing.json has for each map the share of hits with its interval by patient,
    beside that of a random cell, and the share of the map inside the mask, beside the mask's share of the image.
    """
    from cxrlab.evaluation.pointing import pointing as run

    table = run(config, out)
    head = ("map", "hits", "95 % interval", "chance", "mass", "area", "findings")
    rows = [
        (
            name,
            f"{row.localised['hit'].value:.3f}",
            f"{row.localised['hit'].low:.3f} to {row.localised['hit'].high:.3f}",
            *(f"{row.localised[key].value:.3f}" for key in ("chance", "mass", "area")),
            row.localised["hit"].n,
        )
        for name, row in table.maps.items()
    ]
    note = (
        f"localised findings (mask at most {table.localised:.0%} of the image) that the {table.report} report states: "
        f"{table.reported} of {table.present} findings on {table.studies} images are stated"
    )
    return Result(f"{columns([head, *rows])}\n{note}", table)
