"""From statements and their attributes to findings, with the ends of devices."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.core.records import Finding, Span
from cxrlab.core.vocabulary import OBSERVATIONS, TIPS, Certainty, Change, Presence, Severity, Side
from cxrlab.findings.reading.attributes import Traits, traits
from cxrlab.findings.reading.claims import Claim, claims
from cxrlab.findings.reading.mentions_devices import COLLECTIVE, MASKED_PACEMAKER, MASKED_PORT
from cxrlab.findings.reading.mentions_pleura import UNNAMED
from cxrlab.findings.reading.phrases import Item
from cxrlab.findings.reading.places import Where
from cxrlab.findings.reading.predicates import REMARK
from cxrlab.findings.reading.pronouns import explain_earlier, refine, sides_resolved
from cxrlab.findings.reading.rows import Kind
from cxrlab.findings.reading.scope import Scope
from cxrlab.findings.reading.sentences import Sentence
from cxrlab.findings.reading.sharing import share
from cxrlab.findings.reading.territory import territories

_TIES = frozenset({Kind.PREPOSITION, Kind.SIDE, Kind.PLACE, Kind.LEVEL, Kind.LINK, Kind.ARTICLE})


class Draft:
    """A finding while later words may still add to it: `Finding` with fields that can be set."""

    __slots__ = (
        "absent", "at", "change", "degree", "first", "last", "name", "place", "possible", "side", "size",
        "tip", "tip_mm", "tips",
    )  # fmt: skip

    def __init__(self, name: str, claim: Claim, own: Traits, group: Where | None) -> None:
        self.name = name
        self.at = claim.at
        self.absent = claim.absent
        self.possible = claim.possible
        self.side: Side | None = claim.side or (group.side if group else None)
        self.place: str | None = claim.place or (group.places[0] if group and group.places else None)
        self.degree: Severity | None = (group.degree if group else None) or own.degree or claim.degree
        if claim.normal and claim.absent:
            self.degree = None  # "grossly normal" has no degree
        self.change: Change | None = claim.change or (None if claim.absent else own.change)
        if claim.absent and own.previous:
            self.change = Change.RESOLVED  # "the previously seen effusion is not seen"
        self.size = own.size
        self.tips: list[str] = []
        self.tip: str | None = None
        self.tip_mm: float | None = None
        self.first, self.last = own.first, own.last

    def finding(self, span: Span) -> Finding:
        """The finished record."""
        return Finding(
            observation=self.name,
            presence=Presence.ABSENT if self.absent else Presence.PRESENT,
            certainty=Certainty.POSSIBLE if self.possible else Certainty.CERTAIN,
            side=self.side,
            location=self.place,
            severity=self.degree,
            size_mm=self.size,
            change=self.change,
            tip=self.tip,
            tip_mm=self.tip_mm,
            span=span,
        )


class Result:
    """What one sentence says: findings, and whether it says that something is normal."""

    __slots__ = ("alarmed", "drafts", "normal")

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.normal: list[tuple[int, int]] = []  # token ranges
        self.alarmed = False


def understand(sentence: Sentence, earlier: Sequence[Draft]) -> Result:
    """The statements of one sentence; those of earlier ones gain what a pronoun adds to them."""
    items, result = sides_resolved(sentence.items, earlier), Result()
    found = claims(items)
    Scope(items, found, sentence.last).judge()
    _drop_headings(items, found)
    _drop_repeated(items, found, earlier)
    left, right = territories(items, found)
    all_traits = [traits(items, claim, left, right) for claim in found]
    share(items, found, all_traits)
    explain_earlier(items, found, all_traits, earlier)
    _merge(items, found, all_traits)
    for claim, own in zip(found, all_traits, strict=True):
        if claim.dropped:
            continue
        if not claim.observations or (claim.absent and items[claim.at].row is UNNAMED):
            if claim.absent:
                result.normal.append((own.first, own.last))
            elif items[claim.at].row is not REMARK:
                result.alarmed = True
            continue
        groups: Sequence[Where | None] = own.groups or (None,)
        result.drafts += [Draft(name, claim, own, group) for name in claim.observations for group in groups]
    _place_ends(items, result.drafts, earlier)
    result.drafts = [draft for draft in result.drafts if draft.tip or not _masked(items[draft.at])]
    if not found:
        refine(items, earlier)
        result.normal += _quiet(items)
    if all(items[claim.at].row is REMARK and not claim.absent for claim in found):  # "findings of tuberculosis"
        result.alarmed = _alarming(items)
    return result


def _quiet(items: Sequence[Item]) -> list[tuple[int, int]]:
    """What a sentence without a statement says of the whole: "no change", or that something unknown is not there."""
    kinds = {item.kind for item in items}
    said_of_a_part = any(item.kind is Kind.PREDICATE and not item.row.alarm for item in items)
    if items[0].kind is Kind.PRONOUN or Kind.UNSEEN in kinds or said_of_a_part:
        return []
    said = next((index for index, item in enumerate(items) if item.kind in (Kind.CHANGE, Kind.ALARM)), 0)
    before = [item.kind for item in items[:said]]
    if Kind.ASIDE in before and Kind.COMMA not in before:
        return []
    parts = {item.row.name for item in items if item.kind is Kind.SUBJECT}
    changes = {item.row.change for item in items if item.kind is Kind.CHANGE}
    alarm = any(_sounds(item) for item in items)
    denied = alarm and bool(kinds & {Kind.NEGATION, Kind.DENIED}) and not _alarming(items)
    same = changes == {Change.UNCHANGED} and parts <= {"chest"} and not alarm
    return [(items[0].first, items[-1].last)] if denied or same else []


def _alarming(items: Sequence[Item]) -> bool:
    """Whether a word that sounds like a finding stands there and nothing denies it or puts it aside."""
    for index, item in enumerate(items):
        if item.kind in (Kind.NEGATION, Kind.DENIED, Kind.ASIDE):
            return False
        if _sounds(item):
            return all(later.kind is not Kind.DENIED for later in items[index + 1 :])
    return False


def _sounds(item: Item) -> bool:
    """Whether it sounds like a finding that the vocabulary does not have."""
    return item.kind is Kind.ALARM or (item.kind is Kind.PREDICATE and bool(item.row.alarm))


def _masked(item: Item) -> bool:
    """Whether a lost word was guessed to be a device: "chest XXXX"; only its tip can show that it is one."""
    return item.row is MASKED_PORT or item.row is MASKED_PACEMAKER


def _merge(items: Sequence[Item], found: Sequence[Claim], all_traits: Sequence[Traits]) -> None:
    """A thing named again by what it comes from is one statement: "postoperative changes after lobectomy"."""
    for index in range(1, len(found)):
        a, b, first, second = found[index - 1], found[index], all_traits[index - 1], all_traits[index]
        between = items[a.end + 1 : b.start]
        same = a.observations and a.observations == b.observations and not a.dropped and a.absent == b.absent
        ties = _TIES | {Kind.WITH, Kind.VERB, Kind.FILLER} if same and a.observations[0] in TIPS else _TIES
        if same and [item.kind for item in between] == [Kind.OR]:  # "ectasia/tortuosity": two words for one thing
            ties = _TIES | {Kind.OR}
        if same and all(item.kind in ties for item in between) and not (first.groups and second.groups):
            a.dropped = True
            second.groups = second.groups or first.groups
            second.degree, second.change = second.degree or first.degree, second.change or first.change
            second.first = first.first


def _drop_headings(items: Sequence[Item], found: Sequence[Claim]) -> None:
    """A name before a colon is a heading where a statement follows: "Lines and tubes: …"."""
    colon = next((index for index, item in enumerate(items) if item.kind is Kind.COLON), -1)
    headed = any(claim.start > colon for claim in found)
    for claim in found:
        if claim.end < colon and (headed or items[claim.at].row is COLLECTIVE):
            claim.dropped = True


def _drop_repeated(items: Sequence[Item], found: Sequence[Claim], earlier: Sequence[Draft]) -> None:
    """The catheter that was named before is no second one: "… the course of the catheter is unremarkable"."""
    known = any(draft.name in TIPS and not draft.absent for draft in earlier)
    for claim in found:
        item = items[claim.at]
        bare = claim.observations == ("other device",) and item.last - item.first == 1 and not claim.absent
        introduced = claim.start > 0 and items[claim.start - 1].kind in (Kind.ARTICLE, Kind.SIDE)
        if known and bare and not introduced:
            claim.dropped = True


def _place_ends(items: Sequence[Item], drafts: Sequence[Draft], earlier: Sequence[Draft]) -> None:
    for draft in drafts:
        if draft.name in TIPS and draft.place in TIPS[draft.name] and not draft.absent:
            draft.tip, draft.place = draft.place, None
    for index, item in enumerate(items):
        if item.kind is Kind.TIP:
            devices = _device(item.row.tip, index, drafts, earlier)
            if not devices and item.row.side:
                _lend_side(item, index, drafts)
            for draft in devices:
                draft.tips.append(item.row.tip)
                if draft.name == "other device":
                    draft.name = "central venous catheter"  # a catheter that ends in a great vein is one
                draft.tip = _end(draft.name, draft.tips)
        elif item.kind is Kind.ABOVE:
            height = next(
                (one.value for one in reversed(items[max(0, index - 3) : index]) if one.kind is Kind.UNIT), None
            )
            for draft in _device("above carina", index, drafts, earlier):
                draft.tip, draft.tip_mm, draft.size = draft.tip or "above carina", height, None


def _device(tip: str, index: int, drafts: Sequence[Draft], earlier: Sequence[Draft]) -> list[Draft]:
    """The device that ends there: the nearest before, else the next after, else the last one spoken of."""
    fitting = [draft for draft in drafts if tip in _ends(draft.name)]
    before = [draft for draft in fitting if draft.at < index]
    after = [draft for draft in fitting if draft.at > index]
    if before:
        return [draft for draft in before if draft.at == before[-1].at]
    if after:
        return after[:1]
    devices = [draft for draft in earlier[-3:] if draft.name in TIPS]
    return [draft for draft in devices[-1:] if tip in _ends(draft.name)] if not drafts else []


def _lend_side(item: Item, index: int, drafts: Sequence[Draft]) -> None:
    """Where no device ends, the place is that of the finding before it: "foreign body in the right main bronchus"."""
    before = [draft for draft in drafts if draft.at < index]
    if before and before[-1].side is None and OBSERVATIONS[before[-1].name].sided and before[-1].name not in TIPS:
        before[-1].side = item.row.side


def _ends(name: str) -> tuple[str, ...]:
    tips = TIPS.get("central venous catheter" if name == "other device" else name, ())
    return (*tips, "right atrium") if name == "pacemaker" else tips


def _end(name: str, tips: Sequence[str]) -> str | None:
    """Where a device ends that was said to pass or reach several places."""
    if name == "pacemaker":
        if {"right atrium", "right ventricle"} <= set(tips):
            return "right atrium and right ventricle"
        return next((tip for tip in reversed(tips) if tip in TIPS[name]), None)
    # A tube that goes on out of the picture was seen to reach what was named before.
    return next((tip for tip in reversed(tips) if tip != "beyond film"), tips[-1])
