"""How much of the victim its copy has: both against the references, and the copy against the victim's own reports.

    victim_scored/ surrogate_scored/   both against the references of the corpus, as `score` writes them
    victim_reports.jsonl               the victim's reports as references
    fidelity_scored/                   the surrogate against them
    fidelity.json                      values, paired ratio and difference by metric, labels by observation

Intervals are 95 % by patient. Ratio and difference are of the surrogate to the victim, patient by patient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json, sha256_of
from cxrlab.core.json_values import dumps, plain
from cxrlab.core.runs import Run, finished
from cxrlab.core.vocabulary import CHEXPERT_14
from cxrlab.evaluation.compare import ComparisonResult, compare
from cxrlab.evaluation.config import MetricResources, ScoreConfig
from cxrlab.evaluation.generate import PREDICTIONS
from cxrlab.evaluation.metric_choice import list_default_cards, list_gated_families
from cxrlab.evaluation.score import run_score
from cxrlab.evaluation.score_inputs import read_predictions, read_references
from cxrlab.evaluation.scored_runs import INDEX, align_runs, read_tallies
from cxrlab.extraction.fidelity_config import FidelityConfig
from cxrlab.extraction.ratios import observations, ratios, values
from cxrlab.metrics.statistics.intervals import METHOD
from cxrlab.metrics.tally import Family

RESULT, REPORTS = "fidelity.json", "victim_reports.jsonl"
VICTIM, SURROGATE, COPY = "victim", "surrogate", "fidelity"
_KEPT = ("value", "low", "high", "n", "undefined")
_TOLD = ("difference", "low", "high", "p", "p_holm", "verdict", "by_study")


def measure_fidelity(
    victim_run: Path,
    surrogate_run: Path,
    data: Path,
    out: Path,
    settings: FidelityConfig | None = None,
    victim_in: Path | None = None,
) -> dict[str, Any]:
    """Measure a copy; returns the content of fidelity.json.

    Args:
        victim_run: Folder of a finished `generate` of the victim.
        surrogate_run: The same of the surrogate, on the same studies.
        data: Corpus folder with the references.
        out: Run folder; a stopped one is continued, a finished one of the same reports is left as it is.
        settings: Metrics and statistics; the usual ones when left out.
        victim_in: Folder for the victim's scores, which surrogates of one victim may share; `out` when left out.
    """
    settings = settings or FidelityConfig()
    told = {
        **{"victim": str(victim_run), "surrogate": str(surrogate_run), "data": str(data), "settings": settings},
        # A run that was written again is another question, though its folder has the same name.
        "content": [sha256_of(run / PREDICTIONS) for run in (victim_run, surrogate_run)],
    }
    if finished(out, told, seed=settings.seed):
        return dict(read_json(out / RESULT))
    with Run.open(out, told, seed=settings.seed) as run:
        victim = scored(victim_run, data, (victim_in or out) / f"{VICTIM}_scored", settings)
        surrogate = scored(surrogate_run, data, out / f"{SURROGATE}_scored", settings)
        run.write(REPORTS, victim_reports(victim_run, data, settings.section))
        copied = scored(surrogate_run, run.path(REPORTS), out / f"{COPY}_scored", settings)
        found = plain(_measured(victim, surrogate, copied, settings))
        run.write(RESULT, found)
    return dict(found)


def _measured(victim: Path, surrogate: Path, copied: Path, settings: FidelityConfig) -> dict[str, Any]:
    """The whole of fidelity.json, from three folders of scores."""
    found = _compared([victim, surrogate], settings)
    names = [one.metric for one in found.metrics]
    one, two = align_runs([read_tallies(victim), read_tallies(surrogate)])
    copy = read_tallies(copied)
    labelers = ("chexpert", *(("chexbert",) if settings.extras.chexbert else ()))
    return {
        "n": found.n,
        "patients": found.patients,
        "interval": METHOD,
        VICTIM: values_of(found, 0),
        SURROGATE: values_of(found, 1),
        COPY: values(copy, names, settings.seed),
        "ratio": ratios(one, two, names, settings.seed),
        "difference": differences_of(found, 0),
        "observations": {
            labeler: {
                name: observations(run, labeler, settings.seed)
                for name, run in ((VICTIM, one), (SURROGATE, two), (COPY, copy))
            }
            for labeler in labelers
        },
        "left_out": left_out(settings.extras),
    }


def compare_surrogates(
    runs: Mapping[str, Path], data: Path, out: Path, settings: FidelityConfig | None = None
) -> dict[str, Any]:
    """Several surrogates against the first of them, paired by study; returns the content of fidelity.json.

    Args:
        runs: Name → folder of a finished `generate`, or one that `score` wrote; the baseline first (Knockoff, say).
        data: Corpus folder with the references.
        out: Run folder.
        settings: Metrics and statistics; the usual ones when left out.
    """
    settings = settings or FidelityConfig()
    check_names(runs, least=2)
    told = {
        **{"runs": {name: str(run) for name, run in runs.items()}, "data": str(data), "settings": settings},
        "content": [sha256_of(run / (INDEX if _is_scored(run) else PREDICTIONS)) for run in runs.values()],
    }
    if finished(out, told, seed=settings.seed):
        return dict(read_json(out / RESULT))
    with Run.open(out, told, seed=settings.seed) as run:
        folders = [one if _is_scored(one) else scored(one, data, out / name, settings) for name, one in runs.items()]
        found = _compared(folders, settings)
        result = {
            **{"baseline": next(iter(runs)), "n": found.n, "patients": found.patients, "tests": found.tests},
            "values": {name: values_of(found, place) for place, name in enumerate(runs)},
            "difference": {name: differences_of(found, place) for place, name in enumerate(list(runs)[1:])},
            "left_out": left_out(settings.extras),
        }
        run.write(RESULT, result)
    return dict(plain(result))


def check_names(runs: Mapping[str, Path], least: int) -> None:
    """Refuse too few runs, and names that no folder can have."""
    if len(runs) < least:
        raise ConfigError(f"{len(runs)} runs were given; name at least {least}.")
    for name in runs:
        if not name or Path(name).name != name or name.startswith("."):
            raise ConfigError(f"'{name}' cannot be the name of a folder; choose a plain word.")


def _is_scored(run: Path) -> bool:
    return (run / INDEX).is_file()


def _compared(folders: Sequence[Path], settings: FidelityConfig) -> ComparisonResult:
    names = (*settings.metrics, *(name for name in extra_names(settings.extras) if not name.startswith("chexbert.")))
    return compare(folders, seed=settings.seed, metrics=names, trials=settings.swaps)


def values_of(found: ComparisonResult, place: int) -> dict[str, Any]:
    """Metric → value, ends of its interval, n and undefined of one run of a comparison."""
    label = found.runs[place]
    return {
        one.metric: {"direction": one.direction} | {key: getattr(one.values[label], key) for key in _KEPT}
        for one in found.metrics
    }


def differences_of(found: ComparisonResult, place: int) -> dict[str, Any]:
    """Metric → the difference of run `place` + 1 to the baseline, with interval, p and verdict."""
    label = found.runs[place + 1]
    told: Mapping[str, Any] = found.to_json()["metrics"]
    return {
        name: {"direction": one["direction"]} | {key: one["against"][label][key] for key in _TOLD}
        for name, one in told.items()
    }


def scored(predictions: Path, references: Path, out: Path, settings: FidelityConfig) -> Path:
    """Score a run as the settings say, the labels by observation too; returns the folder of the scores."""
    labels = (f"chexpert.{name}.f1:uncertain-positive" for name in CHEXPERT_14)
    extras = settings.extras
    config = ScoreConfig(
        references,
        predictions,
        section=settings.section,
        metrics=tuple(dict.fromkeys((*settings.metrics, *labels, *extra_names(extras)))),
        floors=False,
        slices=False,
        seed=settings.seed,
        graphs=extras.graphs,
        encoder=extras.encoder,
        layer=extras.layer,
        chexbert=extras.chexbert,
        bert=extras.bert,
    )
    run_score(config, out)
    return out


def extra_names(extras: MetricResources) -> list[str]:
    """What is counted beyond the ready metrics with these graphs and weights."""
    return [card.name for family in extra_cards(extras) for card in list_default_cards(family)]


def extra_cards(extras: MetricResources) -> list[Family]:
    """The families that these graphs and weights are enough for; nothing is loaded: they are good for names alone."""
    return [family for family, flags in list_gated_families() if not _lacking(flags, extras)]


def left_out(extras: MetricResources) -> dict[str, str]:
    """First metric of each family that is not counted → what it needs."""
    told = {}
    for family, flags in list_gated_families():
        if lacking := _lacking(flags, extras):
            told[list_default_cards(family)[0].name] = f"not counted: it needs {', '.join(lacking)} of the user"
    return told


def _lacking(flags: str, extras: MetricResources) -> list[str]:
    return [name for flag in flags.split() if getattr(extras, name := flag.removeprefix("--")) is None]


def victim_reports(victim_run: Path, data: Path, section: str) -> str:
    """The victim's reports as JSONL of references, each with patient, age and indication of its study."""
    studies, said = read_references(data, section).items, read_predictions(victim_run).items
    rows = []
    for key, text in said.items():
        study = studies[key]
        known = {"age": study.context.age, "indication": study.context.indication}
        row = {"id": key, "patient": study.patient, "report": text}
        rows.append(row | {name: value for name, value in known.items() if value is not None})
    return "".join(dumps(row) + "\n" for row in rows)
