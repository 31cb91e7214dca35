"""Attack images that were made on stolen copies and shown to their victim, over seeds.

In each audit the victim has the key a. Its reports for images made on a copy stand beside those for images made on the
victim itself (white box), on an unrelated model, and with noise of the same size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cxrlab.evaluation.scored_runs import ScoredRun
from cxrlab.robustness.audit_metrics import FLIP_RATE, ScoredReports, flip_tallies, read_evidence
from cxrlab.studies.over_seeds import PAIRED_METHOD, over_seeds, paired_seeds

COPY, WHITE_BOX, UNRELATED, NOISE = "copy", "victim", "unrelated", "noise"
METRICS = (FLIP_RATE, "errors.added")
VICTIM_KEY = "a"
_SWAPS = 10_000
Shown = Mapping[
    tuple[str, str | None], ScoredRun
]  # (condition, model that the images were made on) → the victim's reports


def transfer_table(
    audits: Mapping[int, Mapping[str, Path]], keys: Mapping[str, tuple[str, str | None]]
) -> dict[str, Any]:
    """The part `transfer` of extraction_seeds.json.

    Args:
        audits: Seed → variant → folder of the audit that its copy is in.
        keys: Variant → keys of its copy and of the unrelated model in these audits; None without one.

    Returns:
        For each variant and condition, `sources`: the share of the victim's reports that change and the significant
        errors that they gain, by what the images were made on; and `differences`: the copy against each other source,
        paired by study.
    """
    shown = {folder: victim_reports(folder) for by_variant in audits.values() for folder in by_variant.values()}
    seeds, variants = list(audits), {}
    for name, (key, unrelated) in keys.items():
        found = [shown[audits[seed][name]] for seed in seeds]
        variants[name] = {
            condition: _condition(found, seeds, condition, key, unrelated)
            for condition, made_on in found[0]
            if made_on == key
        }
    counts = [(len(run.ids), len(set(run.patients))) for one in shown.values() for run in one.values()]
    most = {"n": max(n for n, _ in counts), "patients": max(patients for _, patients in counts)}
    return {**most, "metrics": list(METRICS), "how": PAIRED_METHOD, "variants": variants}


def victim_reports(folder: Path) -> Shown:
    """What the victim of an audit made of every attacked image, against its report for the clean one."""
    evidence = read_evidence(folder)
    scores, clean = ScoredReports(evidence), evidence.clean(VICTIM_KEY).image
    ids, patients = zip(*((study.id, study.patient) for study in evidence.studies), strict=True)
    found = {}
    for table in evidence.tables.values():
        if table.model == VICTIM_KEY and table.condition.kind == "attack":
            tallies = flip_tallies(table.image, clean, evidence.truth, scores)
            run = ScoredRun(folder, ids, patients, "", {name: tallies[name] for name in METRICS}, {})
            found[table.condition.text, table.crafted_on] = run
    return found


def _condition(
    found: Sequence[Shown], seeds: Sequence[int], condition: str, copy: str, unrelated: str | None
) -> dict[str, Any]:
    """One attack at one radius."""
    places = {
        COPY: (condition, copy),
        WHITE_BOX: (condition, VICTIM_KEY),
        UNRELATED: (condition, unrelated),
        NOISE: (f"{NOISE}@{condition.partition('@')[2]}", None),
    }
    known = {
        name: [one[place] for one in found] for name, place in places.items() if all(place in one for one in found)
    }
    return {
        "sources": {
            name: {metric: over_seeds(run.tallies[metric].value for run in runs) for metric in METRICS}
            for name, runs in known.items()
        },
        "differences": {
            name: paired_seeds(list(zip(runs, known[COPY], strict=True)), seeds, METRICS, _SWAPS)
            for name, runs in known.items()
            if name != COPY
        },
    }
