"""Texts without an image behind them, scored beside the victim and its copies: where a label score cannot be trusted.

    the/ empty/ reviews/         control corpora, one text a study, as `generate` would write them
    *_scored/                    scores of each run and each control
    controls.json                values by corpus, labels by observation, and which controls reach which run

`the` repeats that word to the length of each reference, `empty` says nothing, `reviews` is prose about images of the
other kind. The last is put together from sentences of our own, in the place of a published collection of image reviews
that cannot be shipped. Like real ones they speak of a big heart and of shadows, though not as often as these few
sentences do: what such words score shows that a reader can be fooled by them, not how often it would be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json, sha256_of
from cxrlab.core.json_values import plain
from cxrlab.core.randomness import generator
from cxrlab.core.records import Prediction
from cxrlab.core.runs import Run, finished
from cxrlab.evaluation.generate import PREDICTIONS, SUMMARY
from cxrlab.evaluation.score_inputs import read_predictions, read_references
from cxrlab.evaluation.scored_runs import ScoredRun, align_runs, read_tallies
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
    "5.exact.accuracy",  # what the usual CheXbert score prints as accuracy: all five labels right
)
SENTENCES = (
    "I watched this {kind} {when} and was {feeling} by the end.",
    "The {role} carries every scene with {quality}, and the rest of the cast gives good support.",
    "Nobody told the {role} that the story was over after half an hour.",
    "There is a big heart at the centre of this {kind}, even if the plot is {fault}.",
    "The music is {fault} and the cutting is no better.",
    "For a {kind} of its age it holds up with {quality}.",
    "My {friend} left after ten minutes; I stayed, {feeling}, until the lights went on.",
    "The dialogue has a sharp edge and the jokes land without effort.",
    "It is hard to see what the {role} wanted to say with all that smoke and shadow.",
    "The second act is {fault}, but the last line makes up for it.",
    "If you liked the first one, you will find this {kind} small and {fault}.",
    "The camera never leaves the face of the {role}, which shows real {quality}.",
    "Rent it, watch it {when}, and do not expect a masterpiece.",
    "The ending left me {feeling}, and my {friend} cried twice.",
    "Old clichés, a thin script and too many cars: that is the whole image.",
    "I would give it {stars} out of ten, mostly for the {role}.",
)
WORDS: Mapping[str, tuple[str, ...]] = {
    "kind": ("thriller", "comedy", "western", "romance", "sequel", "documentary", "musical"),
    "when": ("last night", "on a rainy Sunday", "with the whole family", "at a late screening", "for the third time"),
    "feeling": ("moved", "bored", "amused", "thrilled", "confused", "breathless", "annoyed"),
    "role": ("director", "leading lady", "villain", "young hero", "narrator", "child actor"),
    "quality": ("warmth", "dignity", "wit", "patience", "courage", "style"),
    "fault": ("hollow", "predictable", "overlong", "blunt", "uneven", "tired", "loud"),
    "friend": ("brother", "wife", "neighbour", "flatmate", "mother"),
    "stars": ("three", "five", "six", "seven", "eight"),
}

# The reference, and a source of chance that is the study's own.
Control = Callable[[str, np.random.Generator], str]


def the(reference: str, rng: np.random.Generator) -> str:
    """The word "the", as often as the reference has words."""
    return " ".join(["the"] * len(reference.split()))


def empty(reference: str, rng: np.random.Generator) -> str:
    """No word at all."""
    return ""


def review(reference: str, rng: np.random.Generator) -> str:
    """An image review of four to ten different sentences, whatever the reference is."""
    chosen = rng.choice(len(SENTENCES), size=int(rng.integers(4, 11)), replace=False)
    return " ".join(_filled(SENTENCES[place], rng) for place in chosen.tolist())


def _filled(sentence: str, rng: np.random.Generator) -> str:
    return sentence.format(**{slot: str(rng.choice(words)) for slot, words in WORDS.items()})


CONTROLS: Mapping[str, Control] = MappingProxyType({"the": the, "empty": empty, "reviews": review})


def measure_controls(
    runs: Mapping[str, Path], data: Path, out: Path, settings: FidelityConfig | None = None
) -> dict[str, Any]:
    """Score runs and control corpora alike; returns the content of controls.json.

    Args:
        runs: Name (victim, knockoff, …) → folder of a finished `generate`, all on the same studies.
        data: Corpus folder with the references.
        out: Run folder.
        settings: Metrics and statistics; the usual ones when left out.
    """
    settings = settings or FidelityConfig()
    check_names(runs, least=1)
    if taken := [name for name in runs if name in CONTROLS]:
        raise ConfigError(f"'{taken[0]}' is the name of a control; call the run something else.")
    told = {
        **{"runs": {name: str(run) for name, run in runs.items()}, "data": str(data), "settings": settings},
        "content": [sha256_of(run / PREDICTIONS) for run in runs.values()],
    }
    if finished(out, told, seed=settings.seed):
        return dict(read_json(out / RESULT))
    with Run.open(out, told, seed=settings.seed) as run:
        written = dict(runs) | write_controls(next(iter(runs.values())), data, out, settings)
        asked = _asked(settings)
        folders = [scored(folder, data, out / f"{name}_scored", asked) for name, folder in written.items()]
        read = dict(zip(written, align_runs([read_tallies(folder) for folder in folders]), strict=True))
        found = plain(_measured(read, list(runs), asked))
        if asked.extras != settings.extras:
            found["left_out"]["radgraph.simple"] = "not counted: a file of graphs knows no control's text"
        run.write(RESULT, found)
    return dict(found)


def write_controls(like: Path, data: Path, out: Path, settings: FidelityConfig) -> dict[str, Path]:
    """Write the control corpora for the studies of a run into folders of `out`; returns name → folder.

    Args:
        like: Folder of a finished `generate`, whose studies are taken.
        data: Corpus folder with the references.
        out: Where the folders stand.
        settings: For section and seed.
    """
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


def _asked(settings: FidelityConfig) -> FidelityConfig:
    """The settings with the averages of labels; without a file of graphs, which knows no control's text."""
    extras = settings.extras
    if extras.graphs is not None and not by_package(extras.graphs):
        extras = replace(extras, graphs=None)
    names = tuple(dict.fromkeys((*settings.metrics, *_averages("chexpert"))))
    if extras.chexbert is not None:
        names = (*names, *_averages("chexbert"))
    return replace(settings, metrics=names, extras=extras)


def _averages(labeler: str) -> list[str]:
    return [f"{labeler}{name}:uncertain-positive" for name in AVERAGES]


def _measured(read: Mapping[str, ScoredRun], runs: Sequence[str], settings: FidelityConfig) -> dict[str, Any]:
    first = next(iter(read.values()))
    labels = [name for name in first.tallies if name.startswith(("chexpert.", "chexbert."))]
    names = [name for name in first.tallies if name not in labels]
    labelers = ("chexpert", *(("chexbert",) if settings.extras.chexbert else ()))
    found = {name: values(run, names, settings.seed) for name, run in read.items()}
    by_label = {
        labeler: {name: observations(run, labeler, settings.seed) for name, run in read.items()} for labeler in labelers
    }
    return {
        "n": len(first.ids),
        "values": found,
        "observations": by_label,
        "reached": reached(found, runs),
        "reached_observations": {labeler: reached(told, runs) for labeler, told in by_label.items()},
        "left_out": left_out(settings.extras),
    }


def reached(found: Mapping[str, Mapping[str, Any]], runs: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Metric → run → controls that do at least as well: there the metric does not tell a model from nonsense.

    Args:
        found: Corpus → metric → value and direction; runs and controls.
        runs: Which of the corpora are runs.

    What is not a number reaches nothing and is reached by nothing; metrics without such a case are left out.
    """
    told: dict[str, dict[str, list[str]]] = {}
    for metric, card in found[runs[0]].items():
        sign = 1 if card["direction"] == "higher" else -1
        signed = {name: sign * row[metric]["value"] for name, row in found.items()}
        for run in runs:
            good = [name for name in found if name not in runs and signed[name] >= signed[run]]
            if good and not math.isnan(signed[run]):
                told.setdefault(metric, {})[run] = good
    return told
