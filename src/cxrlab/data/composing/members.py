"""From the settings of a member to its branch of the tree."""

from __future__ import annotations

import dataclasses
from functools import partial

from cxrlab.core.records import Study
from cxrlab.data.composing.config import Member
from cxrlab.data.composing.pairs import pair_texts
from cxrlab.data.composing.tree import Filter, Node, Source, Subset
from cxrlab.data.corpus import Corpus

# On every study of a composition: whose texts make its pairs.
TEXTS_KEY = "texts"


def branch(corpus: Corpus, member: Member) -> Node:
    """The corpus, then what the member asks for, each as a node."""
    node: Node = Source(corpus)
    node = Filter(node, f"filter: split {', '.join(member.splits)}", partial(_of_splits, member))
    if member.views:
        node = Filter(node, f"filter: images {', '.join(member.views)}", partial(_of_views, member))
    else:
        node = Filter(node, "filter: any image", _with_images)
    wanted = f"{' then ' if member.pair == 'first' else ' and '}".join(member.texts)
    need = "filter: text" if member.needs_text else "text, if any:"
    node = Filter(node, f"{need} {wanted} ({member.section})", partial(_with_texts, member))
    if member.n is not None:
        node = Subset(node, member.n, member.seed)
    if member.as_split is not None:
        node = Filter(node, f"into split {member.as_split}", partial(_into_split, member.as_split))
    return node


def with_images(study: Study, kept: list[int]) -> Study:
    """The study with only these of its images; boxes follow, and masks, which lie on the first, go when it goes."""
    if len(kept) == len(study.images):
        return study
    places = {old: new for new, old in enumerate(kept)}
    boxes = study.boxes
    if boxes is not None:
        boxes = tuple(dataclasses.replace(box, image=places[box.image]) for box in boxes if box.image in places)
    return dataclasses.replace(
        study,
        images=tuple(study.images[old] for old in kept),
        boxes=boxes,
        masks=study.masks if kept[:1] == [0] else {},
    )


def _of_splits(member: Member, study: Study) -> Study | None:
    return study if (study.split or "none") in member.splits else None


def _of_views(member: Member, study: Study) -> Study | None:
    kept = [number for number, image in enumerate(study.images) if image.view and image.view.value in member.views]
    return with_images(study, kept) if kept else None


def _with_images(study: Study) -> Study | None:
    return study if study.images else None


def _with_texts(member: Member, study: Study) -> Study | None:
    kinds = [one.kind for one in pair_texts(study, member)]
    if member.needs_text and not kinds:
        return None
    return dataclasses.replace(study, extra={**study.extra, TEXTS_KEY: kinds})


def _into_split(split: str, study: Study) -> Study:
    # Text that is not the source's is an error in a test split.
    return dataclasses.replace(study, split=split, structured={} if split == "test" else study.structured)
