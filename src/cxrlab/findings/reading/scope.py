"""Which statements are denied, hedged, gone or put aside: how far each cue reaches."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.core.vocabulary import OBSERVATIONS, Change, Group
from cxrlab.findings.reading.claims import Claim
from cxrlab.findings.reading.cues import COMPARISON, CONDITION, HISTORY, OPERATION
from cxrlab.findings.reading.joints import AFTER, BY, SHOWS
from cxrlab.findings.reading.line import ASSERTIVE, LIST, MODIFIERS, WALLS, Line
from cxrlab.findings.reading.phrases import Item
from cxrlab.findings.reading.rows import Cue, Kind

_BACKWARD = frozenset({Kind.DENIED, Kind.HEDGED, Kind.RESOLVED, Kind.UNSEEN, Kind.UNLIKELY})
# A cue that reaches back and finds nothing there acts on what follows: "not seen is a pneumothorax".
_FORWARD = {Kind.DENIED: Kind.NEGATION, Kind.HEDGED: Kind.HEDGE, Kind.RESOLVED: Kind.RESOLUTION}


class _Reach:
    """A cue that acts on what follows, while it does."""

    __slots__ = ("bare", "index", "kind", "last", "linked", "row")

    def __init__(self, item: Item, kind: Kind, index: int) -> None:
        self.index = index
        self.kind = kind
        self.row = item.row
        self.bare = item.last - item.first == 1  # after "no" a list goes on without articles
        self.last: Claim | None = None  # the last statement it acted on
        self.linked = False  # an explanation follows: "no opacity to suggest pneumonia"


def _stands(claim: Claim, row: Cue) -> bool:
    """Whether a statement is a finding though put aside: an operation after "status post", a device in the way."""
    if not claim.observations:
        return False
    device = OBSERVATIONS[claim.observations[0]].group is Group.DEVICE
    if row is OPERATION:
        return device or claim.observations == ("postsurgical change",)
    return device and row is not HISTORY


class Scope:
    """The cues of one sentence at work on its statements.

    Args:
        items: Of the sentence.
        last: Token after the last of the sentence.
        found: Its statements, in order; their `absent`, `possible`, `change` and `dropped` are set by `judge`.
    """

    def __init__(self, items: Sequence[Item], found: Sequence[Claim], last: int) -> None:
        self.items = items
        self.found = found
        self.line = Line(items, found, last)
        self.active: dict[Kind, _Reach] = {}

    def judge(self) -> None:
        """Walk through the sentence once."""
        at: dict[int, list[Claim]] = {}
        for claim in self.found:
            at.setdefault(claim.at, []).append(claim)
        starts = {claim.start for claim in self.found if claim.predicative}
        for index, item in enumerate(self.items):
            kind = item.kind
            if index in starts:
                self.active = {key: reach for key, reach in self.active.items() if reach.last is None}
            for claim in at.get(index, ()):
                self._apply(claim)
            if kind in WALLS:
                self.active.clear()
            elif kind in _BACKWARD:
                self._look_back(index, kind)
            elif kind in _CUES:
                _CUES[kind](self, index)

    def _apply(self, claim: Claim) -> None:
        for kind, reach in list(self.active.items()):
            if reach.last is not None and reach.last.at != claim.at and not self._goes_on(reach, claim):
                del self.active[kind]
                continue
            reach.last = claim
            reach.linked = False
            if kind is Kind.NEGATION:
                self._deny_one(claim, reach)
            elif kind is Kind.HEDGE:
                claim.possible = claim.possible or not self.line.of_an_aspect(claim)
            elif kind is Kind.RESOLUTION and not claim.normal:
                claim.absent, claim.change = True, Change.RESOLVED
            elif kind is Kind.ASIDE:
                claim.dropped = not _stands(claim, reach.row)

    def _deny_one(self, claim: Claim, reach: _Reach) -> None:
        if claim.normal and not claim.part < reach.index < claim.at:
            return  # "no the heart is normal": only "is not normal" asserts
        claim.absent, claim.possible, claim.change = not claim.normal, False, None

    def _goes_on(self, reach: _Reach, claim: Claim) -> bool:
        """Whether a cue that has acted on a statement still acts on the next one."""
        assert reach.last is not None
        between = self.line.between(reach.last, claim)
        kinds = {item.kind for item in between}
        if reach.linked:
            return True
        if reach.kind is Kind.ASIDE and Kind.COMMA in kinds and self.line.verb_follows(claim.end):
            return False
        if reach.row is OPERATION and Kind.WITH in kinds and not reach.last.dropped:
            return False  # "status post lobectomy with volume loss": what the operation left is on the film
        if kinds & {Kind.OR, Kind.VERSUS}:
            return True
        if reach.kind is Kind.NEGATION and any(item.row is AFTER for item in between):
            return False  # "no pneumothorax following pacemaker insertion"
        for item in between:  # "no effusion is seen, …": the verb has closed the denial
            if item.kind in LIST or item.kind is Kind.WITH:
                break
            if item.kind is Kind.VERB:
                return False
        if not kinds & {Kind.COMMA, Kind.AND, Kind.WITH}:
            return True
        new = Kind.ARTICLE in kinds and Kind.AND in kinds and reach.bare
        asserts = new or bool(kinds & ASSERTIVE) or (Kind.AND not in kinds and bool(kinds & {Kind.SIDE, Kind.PLACE}))
        return not asserts or (Kind.WITH not in kinds and self.line.or_follows(claim.end))

    def _look_back(self, index: int, kind: Kind) -> None:
        if kind is Kind.UNSEEN and self._gives_cause(index):
            self.active.pop(Kind.ASIDE, None)
        group = self.line.group_before(index)
        if not group:
            if kind in _FORWARD:
                self.active[_FORWARD[kind]] = _Reach(self.items[index], _FORWARD[kind], index)
            return
        if kind in (Kind.DENIED, Kind.UNSEEN) and self.line.of_the_end(group[0], index):
            return
        if kind is Kind.HEDGED and self.line.of_an_aspect(group[-1]):
            return  # "the cause of the opacity and the effusion is unclear"
        if kind is Kind.UNSEEN and self.items[index - 1].kind is Kind.COMMA and not group[0].normal:
            return  # "fracture of the humerus, incompletely evaluated"
        for claim in group:
            if kind is Kind.DENIED:
                claim.absent, claim.possible = True, False
            elif kind is Kind.UNLIKELY:
                claim.absent = claim.possible = True
            elif kind is Kind.HEDGED:
                claim.possible, claim.absent = True, claim.normal
            elif kind is Kind.UNSEEN:
                claim.dropped = True
            elif not claim.normal:
                claim.absent, claim.change = True, Change.RESOLVED

    def _gives_cause(self, index: int) -> bool:
        """Whether what is in the way follows: "limited by low lung volumes" says that they are low."""
        following = self.items[index + 1] if index + 1 < len(self.items) else None
        return following is not None and (following.row is BY or following.kind is Kind.LINK)

    def _deny(self, index: int) -> None:
        if not self.line.follows(index):
            alone = self.items[index].last - self.items[index].first == 1 and self.line.closes(index)
            for claim in self.line.group_before(index) if alone and not self.active else ():
                claim.absent = not claim.normal  # "pneumothorax: none"
            return
        self.active.pop(Kind.HEDGE, None)
        self.active.pop(Kind.RESOLUTION, None)
        self.active[Kind.NEGATION] = _Reach(self.items[index], Kind.NEGATION, index)

    def _hedge(self, index: int) -> None:
        if not self.line.follows(index):
            if self.line.closes(index):  # otherwise words unknown to the tables follow: "pneumonia, possibly viral"
                self._hedge_before(index)
            return
        denial = self.active.get(Kind.NEGATION)
        if denial is not None:
            if denial.last is None:
                return  # "no possible": the denial decides
            del self.active[Kind.NEGATION]
        self.active[Kind.HEDGE] = _Reach(self.items[index], Kind.HEDGE, index)

    def _hedge_either(self, index: int) -> None:
        if index and self.items[index - 1].row is COMPARISON:
            return  # "compared with May"
        if self.line.follows(index):
            self._hedge(index)
        elif self.line.closes(index):
            self._hedge_before(index)  # otherwise words unknown to the tables follow: "opacity, may be fat"

    def _hedge_before(self, index: int) -> None:
        group = self.line.group_before(index)
        for claim in group if group and not self.line.of_an_aspect(group[-1]) else ():
            claim.possible = True

    def _explain(self, index: int) -> None:
        denial = self.active.get(Kind.NEGATION)
        if denial is not None and (denial.last is None or not self.line.joined_since(denial.last, index)):
            denial.linked = True
            return
        self.active.pop(Kind.NEGATION, None)
        if self.items[index].kind is Kind.HEDGE_LINK:
            self.active[Kind.HEDGE] = _Reach(self.items[index], Kind.HEDGE, index)

    def _versus(self, index: int) -> None:
        if Kind.NEGATION in self.active:
            return
        for claim in self.line.before(index)[-1:]:
            claim.possible = True
        self.active[Kind.HEDGE] = _Reach(self.items[index], Kind.HEDGE, index)

    def _either(self, index: int) -> None:
        """Neither side of an "or" is sure where nothing denies them."""
        before = self.line.before(index)
        after = [claim for claim in self.found if claim.start > index]
        if self.active.keys() & {Kind.NEGATION, Kind.ASIDE, Kind.RESOLUTION} or not before or not after:
            return
        between = (*self.items[before[-1].end + 1 : index], *self.items[index + 1 : after[0].start])
        one, two = before[-1], after[0]
        same = one.observations == two.observations and not between  # "ectasia/tortuosity": two words for one thing
        if {item.kind for item in between} <= MODIFIERS and not (one.absent or two.normal or same):
            one.possible = two.possible = True

    def _query(self, index: int) -> None:
        before = self.line.before(index)
        if before and not self.items[index].value:
            before[-1].possible = True
            self.active.clear()
        else:  # "?infection"
            self.active[Kind.HEDGE] = _Reach(self.items[index], Kind.HEDGE, index)

    def _resolve(self, index: int) -> None:
        if self.line.follows(index):
            self._begin(index)
            return
        for claim in self.line.group_before(index):
            claim.absent, claim.change = True, Change.RESOLVED

    def _begin(self, index: int) -> None:
        if self.items[index].row is CONDITION and index == len(self.items) - 1:
            self._hedge_before(index)  # "small effusion, if any"
            return
        self.active[self.items[index].kind] = _Reach(self.items[index], self.items[index].kind, index)

    def _with(self, index: int) -> None:
        """A limit ends where the film is said to show something: "limited evaluation reveals …"."""
        aside = self.active.get(Kind.ASIDE)
        if aside is not None and aside.last is None and self.items[index].row is SHOWS:
            del self.active[Kind.ASIDE]

    def _comma(self, index: int) -> None:
        """What comes after the comma is said of the film: "compared with the last film, …"."""
        aside = self.active.get(Kind.ASIDE)
        if aside is not None and aside.last is None:
            del self.active[Kind.ASIDE]


_CUES = {
    Kind.NEGATION: Scope._deny,
    Kind.HEDGE: Scope._hedge,
    Kind.HEDGE_EITHER: Scope._hedge_either,
    Kind.HEDGE_LINK: Scope._explain,
    Kind.LINK: Scope._explain,
    Kind.VERSUS: Scope._versus,
    Kind.OR: Scope._either,
    Kind.QUERY: Scope._query,
    Kind.RESOLUTION: Scope._resolve,
    Kind.ASIDE: Scope._begin,
    Kind.COMMA: Scope._comma,
    Kind.WITH: Scope._with,
}
