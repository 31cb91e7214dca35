"""What a report claims, in a form in which two texts can be held against each other.

A defence may change words, never what they say. Present findings are counted, since two nodules are not one. Of a
present finding some details may be dropped where a defence says so; of an absent one none but its change, since
"no large effusion" does not say that there is no effusion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from cxrlab.core.records import Finding
from cxrlab.findings.reader import Reading, read

KEPT = ("observation", "presence", "certainty", "side", "tip")
DROPPABLE = ("location", "severity", "size_mm", "change", "tip_mm", "normal")

Claim = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Claims:
    """What one text says of an image.

    Args:
        present: Each present finding and how often it is told.
        absent: Each denied finding.
        normal: Whether something is called normal without an observation.
        unread: Sentences that sound like a finding which the vocabulary does not know, in small letters.
    """

    present: Counter[Claim]
    absent: frozenset[Claim]
    normal: bool
    unread: frozenset[str]


def claim(finding: Finding, dropped: Collection[str] = ()) -> Claim:
    """One finding as pairs of field and value without its place in the text and without the dropped details."""
    free = set(dropped) if finding.present else {"change"} & set(dropped)
    fields = [name for name in (*KEPT, *DROPPABLE[:-1]) if name not in free]
    return tuple((name, str(getattr(finding, name))) for name in fields if getattr(finding, name) is not None)


def claims(text: str | Reading, dropped: Collection[str] = ()) -> Claims:
    """What a text claims.

    Args:
        text: A report, or what was read of it.
        dropped: Names of `DROPPABLE` that are left out of present findings.
    """
    if isinstance(text, str):
        return _claims_of(text, tuple(dropped))
    return _claims(text, dropped)


@lru_cache(1 << 12)
def _claims_of(text: str, dropped: tuple[str, ...]) -> Claims:
    """Of a text; a report that is held against several others is read once. Nobody may change what comes out."""
    return _claims(read(text), dropped)


def _claims(reading: Reading, dropped: Collection[str]) -> Claims:
    return Claims(
        present=Counter(claim(finding, dropped) for finding in reading if finding.present),
        absent=frozenset(claim(finding, dropped) for finding in reading if not finding.present),
        normal=bool(reading.normal),
        unread=frozenset(" ".join(reading.text[a:b].lower().split()) for a, b in reading.unread),
    )


def difference(report: str, text: str, dropped: Collection[str] = ()) -> str | None:
    """What a text says otherwise than the report, as a clause for a message; None where both claim the same.

    Args:
        report: What the model wrote.
        text: What would be handed out instead.
        dropped: Details of present findings that the text may leave out; "normal" lets it leave out that something is
            normal. It may never call normal what the report does not.
    """
    if text == report:
        return None
    mine, theirs = claims(report, dropped), claims(text, dropped)
    for lost in (mine.present - theirs.present, mine.absent - theirs.absent, mine.unread - theirs.unread):
        if lost:
            return f"it no longer says '{told(min(lost))}'"
    for added in (theirs.present - mine.present, theirs.absent - mine.absent):
        if added:
            return f"it adds '{told(min(added))}'"
    if theirs.normal and not mine.normal:
        return "it calls normal what the report does not"
    if mine.normal and not theirs.normal and "normal" not in dropped:
        return "it no longer says that something is normal"
    return None


def told(one: Claim | str) -> str:
    """A claim for a person: "absent, pleural effusion, left"."""
    if isinstance(one, str):
        return one
    values = dict(one)
    words = [values["observation"], values["presence"]]
    words += [value for name, value in one if name not in ("observation", "presence") and value != "certain"]
    return ", ".join(words)
