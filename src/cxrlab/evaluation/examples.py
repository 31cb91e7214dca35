"""A few studies of a run, with image and reference, for a page that cannot open the corpus."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cxrlab.core.codec import encode_png, to_uint8
from cxrlab.core.examples import EXAMPLES, THUMBS, Example
from cxrlab.core.randomness import generator
from cxrlab.core.records import Study
from cxrlab.core.runs import Run
from cxrlab.data.corpus import Corpus
from cxrlab.data.sheet import finding_words
from cxrlab.data.views import image_of, shown

THUMB_SIZE = 224


def choose(ids: Sequence[str], count: int, seed: int) -> list[str]:
    """`count` of these ids (all when there are fewer), in their order; the same for every model of a seed."""
    order = generator(seed, "examples").permutation(len(ids))[:count]
    return [ids[index] for index in sorted(order.tolist())]


def keep_examples(run: Run, corpus: Corpus, ids: Sequence[str], unreadable: Collection[str] = ()) -> None:
    """Write `examples.jsonl` and the images of these studies into the run.

    Args:
        run: The open run.
        corpus: Where the studies are.
        ids: Which to keep; those already kept are left as they are.
        unreadable: Ids to pass over because their image cannot be read.
    """
    done = run.done(EXAMPLES)
    for number, study_id in enumerate(ids):
        if study_id in done or study_id in unreadable:
            continue
        study = corpus[study_id]
        # Numbered, not named after the study: an id may hold characters that a file name may not.
        thumb = f"{THUMBS}/{number:03d}.png"
        run.write(thumb, encode_png(to_uint8(image_of(corpus, study, THUMB_SIZE))))
        run.append(EXAMPLES, _example(study, thumb))


def _example(study: Study, thumb: str) -> Example:
    person = f"{study.age:g} {study.sex or ''}".strip() if study.age is not None else study.sex
    number, picture = shown(study)
    parts = ("picture" if picture else study.images[number].view, person)
    truth = None
    if study.findings is not None:
        truth = tuple(finding_words(finding) for finding in study.findings if finding.present)
    return Example(
        id=study.id,
        thumb=thumb,
        heading=" · ".join(part for part in parts if part),
        truth=truth,
        reference=study.sections.findings if study.sections else study.caption,
    )
