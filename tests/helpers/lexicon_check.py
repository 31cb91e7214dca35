"""Whether a lexicon is complete and well formed, and whether two lexicons share a phrase."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cxrlab.core.errors import DataError
from cxrlab.core.vocabulary import DRAWN, Change, Group, observation
from cxrlab.findings.disease_models import CONTEXTS, GRADES, SHAPES, Shape
from cxrlab.findings.lexicon import Lexicon, compiled, slots, templates
from cxrlab.findings.negative_statements import NORMAL

WAYS = 6
KINDS = ("finding", "lesion", "device", "bone", "inflation")
IMPORTANCE = ("disease", "incidental", "device")
_SLOTS = {"sev", "adv", "side", "on", "in", "size", "rib", "tip", "at", "is", "are"}
_HEDGE = re.compile(
    r"\b(possibl\w+|may|might|could|suspect\w*|perhaps|likely|probabl\w+|question\w*|query|equivocal|suggest\w*|"
    r"conceivabl\w+|uncertain|cannot)\b"
)


def check_lexicon(lexicon: Lexicon) -> None:
    """Raise DataError with all faults of a lexicon that is incomplete or malformed."""
    faults = [*_observations(lexicon), *_scales(lexicon), *_counts(lexicon), *_frames(lexicon), *_tips(lexicon)]
    if faults:
        raise DataError(f"lexicon {lexicon.name} has {len(faults)} faults: {'; '.join(faults)}.")


def needed_slots(name: str, *, gone: bool = False) -> list[set[str]]:
    """For each attribute that a phrase of the observation must state, the slots that can state it."""
    row, shape = observation(name), SHAPES.get(name, Shape())
    places = set(shape.places or ())
    needed: list[set[str]] = []
    if row.sided:
        needed.append({"side", "on", "in"})
    if any(place.endswith("zone") for place in places):
        needed.append({"in"})
    if any(place.startswith("rib ") for place in places):
        needed.append({"rib"})
    if row.graded and not gone:
        needed.append({"sev", "adv"})
    if row.measured and not gone:
        needed.append({"size"})
    if shape.tips and not gone:
        needed.append({"tip", "at"})
    return needed


def shared_phrases(first: Lexicon, second: Lexicon) -> set[str]:
    """Texts of two words or more that stand in both, without regard to case, slots and forks."""
    return set(_normalised(first)) & set(_normalised(second))


def _normalised(lexicon: Lexicon) -> Iterator[str]:
    for text in templates(lexicon):
        words = re.sub(r"\{\w+\}|[^a-z ]", " ", text.lower()).split()
        if len(words) > 1:
            yield " ".join(words)


def _observations(lexicon: Lexicon) -> Iterator[str]:
    for name in DRAWN:
        row = lexicon.observations.get(name)
        if row is None:
            yield f"'{name}' has no phrases"
            continue
        if len(set(row.ways)) < WAYS:
            yield f"'{name}' has {len(set(row.ways))} ways to be said, not {WAYS}"
        if not row.nouns or not row.absent or len(row.gone) < 2:
            yield f"'{name}' needs a noun phrase, a name when absent and two when resolved"
        for template in (*row.ways, *row.mild):
            yield from _template(name, template, needed_slots(name))
        for template in row.gone:
            yield from _template(name, template, needed_slots(name, gone=True))
        if observation(name).group is not Group.DEVICE:
            verbless = [clause for clause in row.clauses if not slots(clause) & {"is", "are"}]
            yield from (f"the clause '{clause}' has no verb that can be hedged" for clause in verbless)


def _template(name: str, template: str, needed: Sequence[set[str]]) -> Iterator[str]:
    found = slots(template)
    for unknown in sorted(found - _SLOTS):
        yield f"'{template}' of '{name}' has an unknown slot '{{{unknown}}}'"
    for choices in needed:
        if not found & choices:
            yield f"'{template}' of '{name}' lacks a slot {' or '.join('{' + c + '}' for c in sorted(choices))}"
    if _HEDGE.search(template):
        yield f"'{template}' of '{name}' hedges what is certain"
    for both in (False, True):
        if re.search(r"[\[\]<>|]", "".join(compiled(template, both)[0])):
            yield f"'{template}' of '{name}' has a broken fork"
            break


def _scales(lexicon: Lexicon) -> Iterator[str]:
    for grade in GRADES:
        words = {word for scale in lexicon.scales.values() for word in scale.get(grade, ())}
        if len(words) < WAYS:
            yield f"the grade '{grade}' has {len(words)} words over all scales, not {WAYS}"
        for scale in {row.scale for row in lexicon.observations.values()} - {"none"} | {"adverb"}:
            if not lexicon.scales.get(scale, {}).get(grade):
                yield f"the scale '{scale}' has no word for '{grade}'"
    for name, row in lexicon.observations.items():
        if observation(name).graded and row.scale == "none":
            yield f"'{name}' is graded and needs a scale"


def _counts(lexicon: Lexicon) -> Iterator[str]:
    lists: dict[str, Sequence[object]] = {
        name: getattr(lexicon, name)
        for name in (
            "on_side", "places", "tip_frames", "full", "terse", "hedged", "hedged_verbs", "denials", "openers",
             "comparisons", "no_comparison", "impression_normal", "impression_nothing_acute",
        )
    }  # fmt: skip
    changes = [change for change in Change if change is not Change.RESOLVED]
    for kind in KINDS:
        lists[f"resolved, {kind}"] = lexicon.resolved.get(kind, ())
        lists.update({f"{change}, {kind}": lexicon.changes.get(kind, {}).get(change, ()) for change in changes})
    lists.update({f"impression, {kind}": lexicon.impression.get(kind, ()) for kind in IMPORTANCE})
    lists.update({f"normal {kind}": lexicon.normal.get(kind, ()) for kind in (*NORMAL, "whole")})
    lists.update({f"indication, {context}": lexicon.indications.get(context, ()) for context in CONTEXTS})
    lists.update({f"examination, {view}": lexicon.examinations.get(view, ()) for view in ("PA", "AP")})
    for name, options in lists.items():
        if len(set(options)) < WAYS:
            yield f"'{name}' has {len(set(options))} ways, not {WAYS}"


def _frames(lexicon: Lexicon) -> Iterator[str]:
    nouns = {"np", "bare"}
    summary = [frame for rows in lexicon.impression.values() for frame in rows]
    frames = [*lexicon.full, *lexicon.terse, *lexicon.hedged, *summary]
    frames += [frame for rows in lexicon.resolved.values() for frame in rows]
    yield from (f"the frame '{frame}' has no noun phrase" for frame in frames if len(slots(frame) & nouns) != 1)
    certain = [*lexicon.full, *lexicon.terse, *summary]
    yield from (f"the frame '{frame}' hedges what is certain" for frame in certain if _HEDGE.search(frame))
    if not any(frame.endswith("{np}") for frame in lexicon.full):
        yield "no full frame ends with its noun phrase, so that two findings cannot be joined"
    lists = {"list", "bare"}
    yield from (f"the denial '{frame}' has no list" for frame, _ in lexicon.denials if len(slots(frame) & lists) != 1)
    ribs = [text for text in lexicon.rib_groups if slots(text) != {"side", "ribs"}]
    yield from (f"the rib group '{text}' needs {{side}} and {{ribs}}" for text in ribs)
    yield from (f"the comparison '{text}' has no interval" for text in lexicon.comparisons if "{ago}" not in text)


def _tips(lexicon: Lexicon) -> Iterator[str]:
    for name, shape in SHAPES.items():
        for tip in shape.tips or ():
            if not lexicon.tips.get(name, {}).get(tip):
                yield f"the tip '{tip}' of '{name}' has no words"
        for place in shape.places or ():
            known = {*lexicon.zones, *lexicon.ribs, *lexicon.unsided_places, "apex", "chest wall"}
            if place not in known:
                yield f"the place '{place}' of '{name}' has no words"
