"""`cxrlab generate`: predictions of a model on a corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cxrlab.cli.output import Result, columns
from cxrlab.core.errors import ConfigError
from cxrlab.core.metric_names import ARROWS, headline_metrics
from cxrlab.core.runs import state
from cxrlab.evaluation.config import ExplainConfig, GenerateConfig, PointingConfig, ScoreConfig, ValidateConfig


def generate(config: GenerateConfig, out: Path) -> Result:
    """Write a report for every study of a split into RUN/predictions.jsonl.

    A stopped run is continued by running the command again; a finished one is left as it is. A
    study whose image is missing or unreadable, or for which the model refuses to write, gets no
    prediction: it is listed in RUN/summary.json, and the command fails with the count unless
    --allow-missing is given. Up to --control-studies studies are answered again with wrong images;
    a guarded server takes them for an attack, so leave them out there: --control-studies 0.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.evaluation.generate import PREDICTIONS, SUMMARY
    from cxrlab.evaluation.generate import generate as run

    done = run(config, out)
    lost = f"; without a report: {len(done.missing):,}, see {out / SUMMARY}" if done.missing else ""
    unanswered = [kind for kind, count in done.controls.items() if not count] if config.control_studies else []
    refused = f"; not answered with wrong images: {', '.join(unanswered)}" if unanswered else ""
    cautions = "".join(f"\ncaution: {one}" for one in done.cautions)
    return Result(f"{done.predictions:,} reports in {out / PREDICTIONS}{lost}{refused}{cautions}", done)


def score(config: ScoreConfig, out: Path | None = None) -> Result:
    """Score predictions against references: every metric with its interval and what nonsense would score.

    References are a corpus folder, or JSONL, JSON, CSV or TSV with id and report, or text with one report per line;
    predictions are a run folder or a file of the same kinds. One file with both is enough: cxrlab score FILE.csv, with
    columns such as id, reference and candidate; --columns names others. Rows are matched by id (id, study_id, dicom_id,
    accession, …) or another column that both files share; row by row only without any, or with --by-row. A reference
    without a prediction is refused unless --allow-missing scores it as an empty report; a prediction without a
    reference always is.

    --metrics default,chexprompt:http://127.0.0.1:8000/v1#MODEL also asks a judge by a language model. Its answers are
    kept in the run folder as they come: running the command again after a stop goes on, and asks nothing twice.

    Args:
        config: Settings.
        out: Run folder for scores.json, per_study.jsonl and the counts that compare needs; nothing is kept without it.
    """
    from cxrlab.evaluation.score import run_score

    left = _left_as_it_is(out)
    found = run_score(config, out)
    table = score_table(found, config.level, everything=config.all or bool(config.metrics), kept=out is not None)
    return Result(table + left, found)


def score_table(scores: Mapping[str, Any], level: float, *, everything: bool = True, kept: bool = True) -> str:
    """Scores as a person reads them; a star marks what a control reaches too.

    Args:
        scores: Content of scores.json.
        level: Of the intervals.
        everything: Show every metric; else those most people ask for first.
        kept: Whether scores.json was written, where the rest can be seen.
    """
    from cxrlab.evaluation.metric_choice import format_unreadable_answers

    names = list(scores["metrics"])
    shown = names if everything else headline_metrics(names)
    statuses = ", ".join(f"{count:,} {status}" for status, count in scores["statuses"].items())
    head = ["metric", "", f"value [{100 * level:g} %]", "best floor", "n", "undefined"]
    rows, reached = [head], False
    for name in shown:
        score = scores["metrics"][name]
        floor = _best_floor(name, score, scores["floors"])
        star = ""
        if floor is not None and score["value"] is not None:
            beaten = floor[1] >= score["value"] if score["direction"] == "higher" else floor[1] <= score["value"]
            star = " *" if beaten else ""
            reached |= beaten
        interval = f" [{_number(score['low'])}, {_number(score['high'])}]" if score["low"] is not None else ""
        rows.append(
            [
                name,
                ARROWS[score["direction"]],
                f"{_number(score['value'])}{interval}",
                f"{_number(floor[1])} {floor[0]}{star}" if floor else "",
                f"{score['n']:,}",
                f"{score['undefined']:,}",
            ]
        )
    notes = [*(f"caution: {one}" for one in scores.get("cautions", ())), *scores.get("notes", ())]
    if len(shown) < len(names):
        where = " in scores.json" if kept else ""
        notes.append(f"{len(names) - len(shown)} more metrics{where}; --metrics default shows them all here")
    if reached:
        notes.append("* a control that never saw an image scores at least as well: do not trust this number alone")
    notes += format_unreadable_answers(scores.get("judges", {}))
    pairs = "pair" if scores["n"] == 1 else "pairs"
    lines = [f"{scores['n']:,} {pairs}: {statuses}", *_matching(scores.get("matching")), columns(rows), *notes]
    return "\n".join([*lines, *_image_dependence(scores, level)])


def _matching(found: Mapping[str, Any] | None) -> Iterator[str]:
    """How references and predictions were matched, and which columns were read."""
    if not found:
        return
    sides = [found["references"], found["predictions"]]
    rows = " and ".join(
        f"{side['rows']:,} {name}" for side, name in zip(sides, ("references", "predictions"), strict=True)
    )
    ids = list(dict.fromkeys(f"'{side['id']}'" for side in sides if side["id"] is not None))
    how = {
        "file": f"within one file: {found['matched']:,} {'row' if found['matched'] == 1 else 'rows'}",
        "row": f"row by row, not by id: {rows}",
        "id": f"by {' = '.join(ids) or 'id'}: {rows}, {found['matched']:,} matched",
    }[found["by"]]
    reports = [", ".join(f"'{name}'" for name in side["report"]) for side in sides]
    read = "" if not all(reports) else f" (reports: {reports[0]} against {reports[1]})"
    yield f"matched {how}{read}"


def _image_dependence(scores: Mapping[str, Any], level: float) -> list[str]:
    """What the same studies score with wrong images, and the verdict."""
    found = (scores.get("controls") or {}).get("image_dependence")
    if not found:
        return ["whether the image matters was not measured: the predictions come without answers to wrong images"]
    name = found["metric"]
    right = found["right"][name]
    rows = [
        ["image", name, f"right is better by [{100 * level:g} %]", "same words"],
        ["right", f"{_number(right['value'])} [{_number(right['low'])}, {_number(right['high'])}]", "", ""],
    ]
    for kind, image in found["wrong"].items():
        gap = image["difference"]
        by = f"{_number(gap['value'])} [{_number(gap['low'])}, {_number(gap['high'])}]"
        rows.append([kind, _number(image["metrics"][name]), by, f"{100 * image['unchanged']:.0f} %"])
    return ["", columns(rows), found["sentence"]]


def compare(
    runs: list[Path],
    noninferior: tuple[str, ...] = (),
    metrics: tuple[str, ...] = (),
    out: Path | None = None,
    minimum_patients: int = 30,
    trials: int = 10_000,
    seed: int = 7,
) -> Result:
    """Compare scored runs study by study, clustered by patient; the first is the baseline. Exit 1 when a gate fails.

    Args:
        runs: Two or more folders that 'cxrlab score --out' wrote, of the same references.
        noninferior: METRIC=MARGIN: every other run may be worse than the first by less than the margin, or the
            exit code is 1.
        metrics: Names, patterns or groups of metrics, which are also what Holm's correction counts: the fewer, the
            smaller each p; the headline ones and judges when left out, 'all' for every one that the runs share.
        out: Run folder for comparison.json; nothing is kept without it.
        minimum_patients: Fewest patients from which non-inferiority is established; with fewer the exit code is 1.
        trials: Permutations behind each p.
        seed: Decides permutations and resamples.
    """
    from cxrlab.evaluation.compare import compare as compare_runs

    if trials < 1 or seed < 0:
        raise ConfigError(
            f"trials={trials}, seed={seed} is not usable; give at least 1 trial and a seed of at least 0."
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
    """Measure the metrics themselves: against radiologists' judgements, ranking cases, or reports with known errors.

    radpref, radjudge and rexval read the folder of that benchmark; phantom makes its own reports from the seed. Judges
    by language models stand beside the metrics, several side by side: --metrics errors.total,chexprompt:A,chexprompt:B.

    Args:
        config: Settings.
        out: Run folder for validation.json; nothing is kept without it.
    """
    from cxrlab.evaluation.validate import format_validation, run_validation

    left = _left_as_it_is(out)
    found = run_validation(config, out)
    return Result(format_validation(found) + left, found)


def list_metrics(metrics: tuple[str, ...] = (), all: bool = False, long: bool = False) -> Result:
    """List the metrics: direction, range, value of a report scored against itself, what is undefined, what it needs.

    The text shows those scored by default and those that need something of yours; --json always holds all.

    Args:
        metrics: Names, patterns or families to list.
        all: Show every metric.
        long: Also what is undefined, published quirks and the signature.
    """
    from cxrlab.evaluation.metric_choice import describe_metrics

    found = describe_metrics(metrics or None)
    shown = [row for row in found if all or metrics or row["default"] or row["needs"]]
    keys = ["name", "direction", "range", "identity", "default", "needs", "about"]
    keys += ["undefined", "quirk", "signature"] if long else []
    head = {"default": "on", "identity": "self"}
    rows = [[head.get(key, key) for key in keys], *([_cell(item[key]) for key in keys] for item in shown)]
    more = [f"{len(found) - len(shown)} more with --all"] if len(shown) < len(found) else []
    return Result("\n".join([columns(rows), *more]), found)


def _left_as_it_is(out: Path | None) -> str:
    """The last line where a run was finished before: nobody should take its numbers for new ones."""
    if out is None or state(out) != "finished":
        return ""
    return f"\n{out} was finished before and is left as it is; choose another folder to do it again"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, (list, tuple)):
        ends = zip(("-∞", "∞"), value, strict=True)
        return " to ".join(none if bound is None else f"{bound:g}" for none, bound in ends)
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)


def _best_floor(
    name: str, score: Mapping[str, Any], floors: Mapping[str, Mapping[str, float | None]]
) -> tuple[str, float] | None:
    known = [(control, value) for control, values in floors.items() if (value := values.get(name)) is not None]
    sign = 1 if score["direction"] == "higher" else -1
    return max(known, key=lambda item: sign * item[1], default=None)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def explain(config: ExplainConfig, out: Path) -> Result:
    """Lay over an image where the model looked when it wrote a word, as pictures and as arrays.

    Attention is that of the position that emits the word, to the patches of the image; a gradient says on which
    pixels the word's probability hangs. RUN/explain holds a picture and the numbers of each word, RUN/words.png
    all of them on one page, RUN/explain.json what they are.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.evaluation.explain import explain as run

    done = run(config, out)
    lines = [(word.word, f"{len(word.spans)} x", out / word.picture) for word in done.words]
    count = "1 word" if len(done.words) == 1 else f"{len(done.words)} words"
    return Result(f"{columns(lines)}\n{count} explained; see {out}", done)


def pointing(config: PointingConfig, out: Path) -> Result:
    """Score maps against the exact masks of a corpus: does the hottest place lie on the finding that the word names?

    RUN/pointing.json gives for each map the share of hits with its interval by patient, beside what a random cell
    would hit, and the share of the map inside the mask beside the mask's share of the image.

    Args:
        config: Settings.
        out: The run folder.
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
        f"localised findings (mask at most {table.localised:.0%} of the image) that the {table.report} report tells: "
        f"{table.reported} of {table.present} findings on {table.studies} images are told"
    )
    return Result(f"{columns([head, *rows])}\n{note}", table)
