"""Control texts without an image behind them, scored beside the victim and its copies, to show unreliable metrics.

    the/ empty/ reviews/         one text per study, as `generate` would write them
    *_scored/                    scores of each run and each control
    controls.json                values by metric, labels by observation, and which controls reach which run

`the` repeats that word to the length of each reference, `empty` is empty, `reviews` is prose about cinema films.
A label score that a control reaches can be fooled; how often real texts would do so it does not show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from cxrlab.core.config import read_yaml
from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json, sha256_of
from cxrlab.core.json_values import plain
from cxrlab.core.randomness import generator
from cxrlab.core.records import Prediction
from cxrlab.core.runs import Run, finished
from cxrlab.evaluation.generate import PREDICTIONS, SUMMARY
from cxrlab.evaluation.score_inputs import read_predictions, read_references
from cxrlab.evaluation.scored_runs import align_runs, read_tallies
from cxrlab.extraction.config import FidelityConfig
from cxrlab.extraction.fidelity import check_names, left_out, observations, scored, values
from cxrlab.metrics.radgraph import by_package

RESULT = "controls.json"
AVERAGES = (
    "14.micro.f1",
    "14.macro.f1",
    "14.weighted.f1",
    "14.example.f1",
    "14.macro.precision",
    "14.macro.recall",
    "14.micro.accuracy",
    "5.exact.accuracy",  # the accuracy of the usual CheXbert score: all five labels right
)
_REVIEWS, _ = read_yaml(Path(__file__).parent / "control_texts.yaml")
SENTENCES: tuple[str, ...] = tuple(_REVIEWS["sentences"])
WORDS: Mapping[str, list[str]] = _REVIEWS["words"]

# The reference, and a random generator of the study.
Control = Callable[[str, np.random.Generator], str]


def repeat_the(reference: str, rng: np.random.Generator) -> str:
    """The word "the", as often as the reference has words."""
    return " ".join(["the"] * len(reference.split()))


def empty(reference: str, rng: np.random.Generator) -> str:
    """An empty report."""
    return ""


def review(reference: str, rng: np.random.Generator) -> str:
    """A film review of four to ten different sentences, whatever the reference is."""
    chosen = rng.choice(len(SENTENCES), size=int(rng.integers(4, 11)), replace=False)
    filled = []
    for place in chosen.tolist():
        words = {slot: str(rng.choice(options)) for slot, options in WORDS.items()}
        filled.append(SENTENCES[place].format(**words))
    return " ".join(filled)


CONTROLS: Mapping[str, Control] = MappingProxyType({"the": repeat_the, "empty": empty, "reviews": review})


def measure_controls(
    runs: Mapping[str, Path], data: Path, out: Path, settings: FidelityConfig | None = None
) -> dict[str, Any]:
    """Score runs and controls alike; returns the content of controls.json.

    Args:
        runs: Name (victim, knockoff, …) → folder of a finished `generate`, all on the same studies.
        data: Corpus folder with the references.
        settings: Metrics and statistics; the defaults when left out.
    """
    settings = settings or FidelityConfig()
    check_names(runs, least=1)
    if taken := [name for name in runs if name in CONTROLS]:
        raise ConfigError(f"'{taken[0]}' is the name of a control; rename the run.")
    config = {
        **{"runs": {name: str(run) for name, run in runs.items()}, "data": str(data), "settings": settings},
        "content": [sha256_of(run / PREDICTIONS) for run in runs.values()],
    }
    if finished(out, config, seed=settings.seed):
        return dict(read_json(out / RESULT))
    # The averages of labels are added; a file of graphs does not hold the texts of controls.
    extras = settings.extras
    if extras.graphs is not None and not by_package(extras.graphs):
        extras = replace(extras, graphs=None)
    labelers = ["chexpert", *(["chexbert"] if extras.chexbert is not None else [])]
    averages = [f"{labeler}{name}:uncertain-positive" for labeler in labelers for name in AVERAGES]
    scoring = replace(settings, metrics=tuple(dict.fromkeys((*settings.metrics, *averages))), extras=extras)
    with Run.open(out, config, seed=settings.seed) as run:
        generated = dict(runs) | write_controls(next(iter(runs.values())), data, out, settings)
        folders = [scored(folder, data, out / f"{name}_scored", scoring) for name, folder in generated.items()]
        scores = dict(zip(generated, align_runs([read_tallies(folder) for folder in folders]), strict=True))
        first = next(iter(scores.values()))
        names = [name for name in first.tallies if not name.startswith(("chexpert.", "chexbert."))]
        value = {name: values(one, names, settings.seed) for name, one in scores.items()}
        by_label = {
            labeler: {name: observations(one, labeler, settings.seed) for name, one in scores.items()}
            for labeler in labelers
        }
        found = plain(
            {
                "n": len(first.ids),
                "values": value,
                "observations": by_label,
                "reached": reached(value, list(runs)),
                "reached_observations": {labeler: reached(rows, list(runs)) for labeler, rows in by_label.items()},
                "left_out": left_out(extras),
            }
        )
        if extras != settings.extras:
            found["left_out"]["radgraph.simple"] = "not counted: the file of graphs holds no control's text"
        run.write(RESULT, found)
    return dict(found)


def write_controls(like: Path, data: Path, out: Path, settings: FidelityConfig) -> dict[str, Path]:
    """Write the controls for the studies of the run `like` into folders of `out`; returns name → folder."""
    references = read_references(data, settings.section).items
    texts = {key: references[key].text or "" for key in read_predictions(like).items}
    for name, control in CONTROLS.items():
        config = {"control": name, "like": str(like), "data": str(data), "section": settings.section}
        if finished(out / name, config, seed=settings.seed):
            continue
        with Run.open(out / name, config, seed=settings.seed) as run:
            done = run.done(PREDICTIONS)
            for key, text in texts.items():
                if key not in done:
                    rng = generator(settings.seed, "control", name, key)
                    run.append(PREDICTIONS, Prediction(key, control(text, rng)))
            run.write(SUMMARY, {"control": name, "predictions": len(texts), "missing": []})
    return {name: out / name for name in CONTROLS}


def reached(found: Mapping[str, Mapping[str, Any]], runs: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Metric → run → controls that do at least as well: there the metric does not tell a model from nonsense.

    `found` has metric → value and direction of runs and controls. Not-a-number reaches nothing and is not reached;
    metrics without such a case are left out.
    """
    cases: dict[str, dict[str, list[str]]] = {}
    for metric, card in found[runs[0]].items():
        sign = 1 if card["direction"] == "higher" else -1
        signed = {name: sign * row[metric]["value"] for name, row in found.items()}
        for run in runs:
            good = [name for name in found if name not in runs and signed[name] >= signed[run]]
            if good and not math.isnan(signed[run]):
                cases.setdefault(metric, {})[run] = good
    return cases
