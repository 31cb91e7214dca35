"""What alignment by each loss and each judge gains and costs, over several seeds.

    corpora/                      what the file asks to be drawn
    seedS/start                   the model that is aligned, where the study trains it
    seedS/sample                  reports that it draws
    seedS/judge/VARIANT           their rewards; what variants share stands with the first of them, here and below
    seedS/pair/VARIANT            the better and the worse of them
    seedS/train/VARIANT           the aligned model, measured before and after
    seedS/before/VARIANT          what the start wrote for the test split
    seedS/robustness/VARIANT      the aligned model against its start on perturbed images, where the study asks for it
    trials.jsonl                  one line a variant and seed: what its pairs are like, what its preference.json says
    preferences.json page.html    the table over seeds
    robustness_seeds.json         the audits over seeds

A study that was stopped goes on with the part that it was in.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.render.page import PAGE, write_page
from cxrlab.studies.parts import Part, raise_absent_models
from cxrlab.studies.preference_config import PreferenceStudyConfig
from cxrlab.studies.preference_plan import (
    BEFORE,
    JUDGE,
    PAIR,
    ROBUSTNESS,
    SAMPLE,
    START,
    TRAIN,
    AlignmentPlan,
    AlignmentTrial,
    plan,
)
from cxrlab.studies.preference_table import table
from cxrlab.studies.robustness_table import audits_over_seeds
from cxrlab.studies.side_by_side import named, side_by_side
from cxrlab.studies.study_corpora import corpus_folders, make_corpora, raise_absent

if TYPE_CHECKING:
    from cxrlab.preference.pair import Pairing

OPERATIONAL = ("at_once",)  # may differ when a study is continued
CORPORA, TRIALS, TABLE, SUMMARY = "corpora", "trials.jsonl", "preferences.json", "summary.json"
AUDITS = "robustness_seeds.json"


def run_preference_study(config: PreferenceStudyConfig, out: Path) -> Path:
    """Align one model in every way with every seed, measure it before and after, and end with a page.

    Args:
        config: Settings.
        out: Folder of the study; a stopped one is continued, a finished one is shown again.
    """
    folders = corpus_folders(config.corpora, out / CORPORA)
    planned = plan(config, folders, out)
    if not finished(out, config, operational=OPERATIONAL):
        raise_absent(config.corpora, folders)
        _check_start(config, planned, out)
        with Run.open(out, config, operational=OPERATIONAL) as run:
            make_corpora(config.corpora, folders)
            _check_splits(planned, folders[config.data])
            if config.at_once > 1:
                needs = {part.folder: part.needs for part in planned.parts}
                side_by_side(partial(_one_part, planned, out), needs, config.at_once)
            for part in track(planned.parts, "parts of the study"):
                with named(part.folder):
                    _make(part, planned, out)
            done = run.done(TRIALS)
            for trial in planned.trials:
                if trial.id not in done:
                    run.append(TRIALS, _record(trial, out))
            run.write(TABLE, table(config, [record for _, record in read_jsonl(out / TRIALS)]))
            if config.robustness:
                run.write(AUDITS, audits_over_seeds(config, planned.trials, out))
            run.write(SUMMARY, {"about": f"{len(config.variants)} ways to align; seeds: {len(config.seeds)}."})
    # Of all the aligned models a page shows one whole: the first, with what was written before and after.
    first = planned.trials[0]
    written = [out / planned.before[first.train] / "before", out / first.train / "measured" / "after"]
    audits = [out / first.robustness] if first.robustness else []
    title = "Alignment by preference" + (" and robustness" if audits else "")
    return write_page([out, out / first.train, *written, *audits], out / PAGE, title=title)


def _check_start(config: PreferenceStudyConfig, planned: AlignmentPlan, out: Path) -> None:
    """A model that is not there, or has no weights, is told before anything is drawn."""
    from cxrlab.training.llava import check_has_weights

    keys = ("start", "encoder", "language_model")
    starts = [part.config for part in planned.parts if part.kind == START]
    for start in starts:
        if start.start is not None:
            check_has_weights(start.start)
    raise_absent_models([config.model, *(getattr(start, key) for start in starts for key in keys)], out)


def _check_splits(planned: AlignmentPlan, folder: Path) -> None:
    """Nothing is trained when there is nothing to learn from, to watch or to measure."""
    from cxrlab.data.corpus import load_corpus

    corpus = load_corpus(folder)
    watched = any(part.config.validation.n for part in planned.parts if part.kind == TRAIN)
    for split in ("train", *(("val",) if watched else ()), "test"):
        if not corpus.ids(split):
            raise DataError(f"the corpus {folder} has no study in its {split} split; take a larger one.")


def _one_part(planned: AlignmentPlan, out: Path, folder: str) -> None:
    _make(planned.part(folder), planned, out)


def _make(part: Part, planned: AlignmentPlan, out: Path) -> None:
    """Make a part; one that was stopped is continued, one that is finished with these settings is left as it is."""
    folder = out / part.folder
    if part.kind == START:
        from cxrlab.training.report_training import finetune

        finetune(part.config, folder)
    elif part.kind == SAMPLE:
        from cxrlab.preference.sample import sample

        sample(part.config, folder)
    elif part.kind == JUDGE:
        from cxrlab.preference.judge import judge

        judge(part.config, folder)
    elif part.kind == PAIR:
        _pair(part, folder)
    elif part.kind == BEFORE:
        from cxrlab.preference.measure import measure_start
        from cxrlab.training.llava import start_model_name

        asked = part.config
        data, seed = asked.measure.data or asked.data, asked.optimisation.seed
        measure_start(start_model_name(asked.start), data, asked.measure, folder, seed)
    elif part.kind == ROBUSTNESS:
        from cxrlab.robustness.audit import audit

        audit(part.config, folder)
    else:
        assert part.kind == TRAIN
        from cxrlab.preference.train import prefer

        prefer(part.config, folder, out / planned.before[part.folder])


def _pair(part: Part, folder: Path) -> None:
    from cxrlab.preference.pair import pair

    found = pair(part.config, folder)
    if not found.kept:
        raise DataError(
            f"{found.judge} prefers none of {found.candidates:,} reports of {found.studies:,} studies, so there is no "
            f"pair to learn from ({_why(found) or 'no two to compare'}); draw more or longer ones under 'sample', ask "
            "less under 'pair', or choose another judge."
        )


def _why(found: Pairing) -> str:
    """What stood against pairs, as summary.json counts it."""
    reasons = ("ties", "below_margin", "too_long", "too_low", "cut", "not_preferred")
    counts = {reason: getattr(found, reason) for reason in reasons}
    return ", ".join(f"{reason} {count:,}" for reason, count in counts.items() if count)


def _record(trial: AlignmentTrial, out: Path) -> Mapping[str, Any]:
    """A line of trials.jsonl."""
    return {
        "id": trial.id,
        "variant": trial.variant,
        "seed": trial.seed,
        "pair": trial.pair,
        "train": trial.train,
        "pairs": read_json(out / trial.pair / SUMMARY),
        "preference": read_json(out / trial.train / "preference.json"),
    }
