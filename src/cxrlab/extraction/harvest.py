"""Descriptions in the victim's own words: what it has said so far, category by category.

A surrogate that has learnt the victim's words gives those words a slope to follow; it has never read an oracle's.
"""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.extraction.anatomy import Category, split_by_category
from cxrlab.extraction.diversity import answer_of
from cxrlab.extraction.oracles import Descriptions, distinct


def harvested(reports: Sequence[str], otherwise: Descriptions) -> Descriptions:
    """What reports say of each category, abnormal and normal apart.

    Args:
        reports: Answers of the victim; those that say nothing of an image give nothing.
        otherwise: Of an oracle, for a category and kind of which no report speaks.
    """
    abnormal: dict[Category, list[str]] = {category: [] for category in Category}
    normal: dict[Category, list[str]] = {category: [] for category in Category}
    for report in dict.fromkeys(reports):
        if not answer_of(report).has_statements:
            continue
        for category, text in split_by_category(report).items():
            if text:
                (abnormal if answer_of(text).findings else normal)[category].append(text)
    return Descriptions(
        {category: distinct(texts) or otherwise.abnormal[category] for category, texts in abnormal.items()},
        {category: distinct(texts) or otherwise.normal[category] for category, texts in normal.items()},
    )
