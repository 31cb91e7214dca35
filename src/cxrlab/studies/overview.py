"""A corpus in numbers, for a page that cannot open it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cxrlab.core.records import SPLITS
from cxrlab.data.corpus import Corpus


def corpus_overview(corpus: Corpus) -> dict[str, Any]:
    """Card, counts, and in how many studies each finding is present, most frequent first.

    A study counts once for a finding however often it shows it. Studies whose findings are not
    known do not count; a corpus without any such knowledge has an empty list.
    """
    seen: dict[str, Counter[str]] = {}
    for study in corpus.studies():
        for name in {finding.observation for finding in study.findings or () if finding.present}:
            row = seen.setdefault(name, Counter())
            row["studies"] += 1
            if study.split is not None:
                row[study.split] += 1
    order = sorted(seen, key=lambda name: (-seen[name]["studies"], name))
    card = corpus.card
    return {
        "name": card.name,
        "source": card.source,
        "licence": card.licence,
        "citation": card.citation,
        "counts": dict(card.counts),
        "findings": [
            {"observation": name, "studies": seen[name]["studies"], **{split: seen[name][split] for split in SPLITS}}
            for name in order
        ],
    }
