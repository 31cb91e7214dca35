"""How much of report models can be copied by queries, in every way that the file asks for, over several seeds.

    corpora/                      what the file asks to be drawn
    models/NAME                   victims and starts that the study trains, once for all seeds
    seedS/victims/VARIANT         what the victim writes on the test split; what variants share stands with the first
    seedS/extract/VARIANT         one whole attack with its copy, as 'cxrlab extract' writes it
    detect/                       detectors over the queries of the first seed
    seedS/defend/NAME             one defence against one attack; defend/ has them together
    controls/                     copies beside texts without an image
    attack.yaml watermark.key     the attack that defences meet; a key for the watermark, drawn from the seed: no secret
    trials.jsonl                  one line a variant and seed: what its extraction.json says
    extraction_seeds.json         the figures over seeds, every comparison, every table
    page.html                     all of it

A study that was stopped goes on with the part that it was in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cxrlab.core.config import to_yaml
from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.extraction.surrogate import parse_surrogate
from cxrlab.render.page import PAGE, write_page
from cxrlab.studies.extraction_config import ExtractionStudyConfig
from cxrlab.studies.extraction_parts import make, together
from cxrlab.studies.extraction_plan import (
    ATTACK_FILE,
    DEFEND,
    DETECT,
    EXTRACT,
    KEY_FILE,
    MODEL,
    ExtractionPlan,
    ExtractionTrial,
    plan,
)
from cxrlab.studies.extraction_table import table, wins
from cxrlab.studies.paired_seeds import HOW, paired_seeds
from cxrlab.studies.parts import raise_absent_models
from cxrlab.studies.side_by_side import named, side_by_side
from cxrlab.studies.study_corpora import corpus_folders, make_corpora, raise_absent

OPERATIONAL = ("at_once",)  # may differ when a study is continued
CORPORA, TRIALS, TABLE, SUMMARY, CONTROLS = (
    *("corpora", "trials.jsonl", "extraction_seeds.json", "summary.json"),
    "controls",
)
RESULT = "extraction.json"
_BULKY = ("observations", "threat")  # what a line of trials.jsonl does without


def run_extraction_study(config: ExtractionStudyConfig, out: Path) -> Path:
    """Copy models in every way with every seed, compare the copies, and end with a page.

    Args:
        config: Settings.
        out: Folder of the study; a stopped one is continued, a finished one is shown again.
    """
    folders = corpus_folders(config.corpora, out / CORPORA)
    planned = plan(config, folders, out)
    if not finished(out, config, operational=OPERATIONAL):
        raise_absent(config.corpora, folders)
        raise_absent_models(_models(planned), out)
        with Run.open(out, config, operational=OPERATIONAL) as run:
            make_corpora(config.corpora, folders)
            _check_images(planned, folders[config.data])
            _write_attack(run, config, planned)
            if config.at_once > 1:
                needs = {part.folder: part.needs for part in planned.parts}
                side_by_side(partial(_one_part, planned, out), needs, config.at_once)
            for part in track(planned.parts, "parts of the study"):
                with named(part.folder):
                    make(part, planned, out)
            together([out / part.folder for part in planned.parts if part.kind == DEFEND], out / DEFEND)
            done = run.done(TRIALS)
            for trial in planned.trials:
                if trial.id not in done:
                    run.append(TRIALS, _record(trial, out))
            told = table(config, [record for _, record in read_jsonl(out / TRIALS)])
            run.write(TABLE, {**told, **_compared(config, planned, folders[config.data], out)})
            run.write(SUMMARY, {"about": f"{len(config.variants)} attacks; seeds: {len(config.seeds)}."})
    return write_page([out, *_shown(config, planned, out)], out / PAGE, title="What it costs to copy a report model")


def _models(planned: ExtractionPlan) -> Iterator[str | None]:
    """Every model that is named; those that the study makes are among them."""
    for part in planned.parts:
        if part.kind == EXTRACT:
            parts = parse_surrogate(part.config.surrogate)
            yield from (part.config.victim, parts.start, parts.encoder, parts.language_model)
            yield part.config.alignment.guide
        elif part.kind == MODEL:
            yield from (part.config.start, part.config.encoder, part.config.language_model)


def _check_images(planned: ExtractionPlan, folder: Path) -> None:
    """Nothing is trained when there is nothing to measure on, or fewer pictures than an attack asks."""
    from cxrlab.data.corpus import load_corpus
    from cxrlab.extraction.pools import open_pool
    from cxrlab.extraction.preflight import pictures_needed

    corpus = load_corpus(folder)
    asked: dict[tuple[str, int], int] = {}
    for part in planned.parts:
        if part.kind == EXTRACT:
            if not corpus.ids(part.config.split):
                raise DataError(
                    f"the corpus {folder} has no study in its {part.config.split} split; take a larger one."
                )
            key = part.config.pool, part.config.size
            asked[key] = max(asked.get(key, 0), pictures_needed(part.config))
    for (pool, size), count in asked.items():
        held = open_pool(pool, size=size, seed=0).count if count else None
        if held is not None and held < count:
            raise DataError(f"the pool '{pool}' holds {held} pictures, but an attack asks {count}; take a larger one.")


def _write_attack(run: Run, config: ExtractionStudyConfig, planned: ExtractionPlan) -> None:
    """What the defences need beside their settings: the attack as a file, and a key for a watermark."""
    if config.attack is None:
        return
    seed = config.seeds[0]
    attack = planned.part(planned.trial(config.attack, seed).extract).config
    # Neither smaller budgets nor a map change the copy, and both take their time.
    run.write(ATTACK_FILE, to_yaml(replace(attack, at=(), map_sentences=0)))
    run.write(KEY_FILE, generator(seed, "study", "watermark key").bytes(32).hex())


def _one_part(planned: ExtractionPlan, out: Path, folder: str) -> None:
    make(planned.part(folder), planned, out)


def _record(trial: ExtractionTrial, out: Path) -> Mapping[str, Any]:
    """A line of trials.jsonl."""
    found = {key: value for key, value in read_json(out / trial.extract / RESULT).items() if key not in _BULKY}
    return {
        **{"id": trial.id, "variant": trial.variant, "seed": trial.seed},
        **{"extract": trial.extract, "victim": trial.victim, "extraction": found},
    }


def _compared(config: ExtractionStudyConfig, planned: ExtractionPlan, data: Path, out: Path) -> dict[str, Any]:
    """Contrasts, wins of one over another, and controls."""
    from cxrlab.evaluation.scored_runs import read_tallies
    from cxrlab.extraction.audit import MEASURED
    from cxrlab.extraction.fidelity import pairwise_wins
    from cxrlab.extraction.text_controls import measure_controls

    seeds, swaps = config.seeds, planned.part(planned.trials[0].extract).config.measure.swaps

    def scores(name: str, seed: int) -> Any:
        return read_tallies(_written(planned.trial(name, seed), out).parent / MEASURED / "surrogate_scored")

    contrasts = []
    for name, against in track(config.contrasts, "contrasts"):
        pairs = [(scores(against, seed), scores(name, seed)) for seed in seeds]
        row = {"name": name, "against": against, "how": HOW}
        contrasts.append({**row, "metrics": paired_seeds(pairs, seeds, config.metrics, swaps)})
    won = []
    for a, b in track(config.pairwise, "reports held against reports"):
        runs = [[_written(planned.trial(name, seed), out) for name in (a, b)] for seed in seeds]
        found = [pairwise_wins(one, two, data, seed=seed) for (one, two), seed in zip(runs, seeds, strict=True)]
        won.append(wins(a, b, found, seeds))
    found_controls: dict[str, Any] = {}
    if config.controls:
        first = [planned.trial(name, seeds[0]) for name in config.controls]
        texts = {"victim": out / first[0].victim, **{one.variant: _written(one, out) for one in first}}
        settings = planned.part(first[0].extract).config.measure
        found_controls = {"seed": seeds[0], **measure_controls(texts, data, out / CONTROLS, settings)}
    return {"contrasts": contrasts, "pairwise": won, "controls": found_controls}


def _written(trial: ExtractionTrial, out: Path) -> Path:
    """What the copy of the whole budget wrote on the corpus."""
    folder = out / trial.extract
    return folder / str(read_json(folder / RESULT)["predictions"])


def _shown(config: ExtractionStudyConfig, planned: ExtractionPlan, out: Path) -> list[Path]:
    """The runs that the page shows whole: the main table's of the first seed, detectors and defences."""
    tables = config.shown_tables()
    names = next(iter(tables.values())).variants if tables else [next(iter(config.variants))]
    runs = dict.fromkeys(planned.trial(name, config.seeds[0]).extract for name in names)
    more = [name for name, wanted in ((DETECT, config.detect), (DEFEND, config.defend)) if wanted]
    return [out / folder for folder in (*runs, *more)]
