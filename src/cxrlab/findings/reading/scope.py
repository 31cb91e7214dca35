"""Which statements are denied, hedged, gone or put aside: how far each cue reaches."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.core.vocabulary import OBSERVATIONS, Change, Group
from cxrlab.findings.reading.claims import Claim
from cxrlab.findings.reading.cues import HISTORY, OPERATION
from cxrlab.findings.reading.phrases import Item
from cxrlab.findings.reading.rows import Cue, Kind

_WALLS = frozenset({Kind.BREAK, Kind.THERE, Kind.COLON})
_BACKWARD = frozenset({Kind.DENIED, Kind.HEDGED, Kind.RESOLVED, Kind.UNSEEN, Kind.UNLIKELY})
# A cue that reaches back and finds nothing there acts on what follows: "not seen is a pneumothorax".
_FORWARD = {Kind.DENIED: Kind.NEGATION, Kind.HEDGED: Kind.HEDGE, Kind.RESOLVED: Kind.RESOLUTION}
# Words that bring in something that is there: after them a list of denials has ended.
_ASSERTIVE = frozenset({Kind.DEGREE, Kind.CHANGE, Kind.UNIT})
_MODIFIERS = _ASSERTIVE | {
    Kind.SIDE, Kind.PLACE, Kind.LEVEL, Kind.ORDINAL, Kind.PREPOSITION, Kind.FILLER, Kind.SUBJECT, Kind.ARTICLE,
}  # fmt: skip
_LIST = frozenset({Kind.COMMA, Kind.AND, Kind.OR, Kind.VERSUS})


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
    if row is OPERATION:
        return claim.observations == ("postsurgical change",)
    return row is not HISTORY and OBSERVATIONS[claim.observations[0]].group is Group.DEVICE


class Scope:
    """The cues of one sentence at work on its statements.

    Args:
        items: Of the sentence.
        last: Token after the last of the sentence.
        found: Its statements, in order; their `absent`, `possible`, `change` and `dropped` are set by `judge`.
    """

    def __init__(self, items: Sequence[Item], found: Sequence[Claim], last: int) -> None:
        self.items = items
        self.last = last
        self.found = found
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
            if kind in _WALLS:
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
                claim.possible = True
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
        between = self.items[reach.last.end + 1 : claim.start]
        kinds = {item.kind for item in between}
        if reach.linked:
            return True
        if reach.kind is Kind.ASIDE and Kind.COMMA in kinds and self._verb_follows(claim.end):
            return False
        if kinds & {Kind.OR, Kind.VERSUS}:
            return True
        for item in between:  # "no effusion is seen, …": the verb has closed the denial
            if item.kind in _LIST or item.kind is Kind.WITH:
                break
            if item.kind is Kind.VERB:
                return False
        if not kinds & {Kind.COMMA, Kind.AND, Kind.WITH}:
            return True
        new = Kind.ARTICLE in kinds and Kind.AND in kinds and reach.bare
        asserts = new or bool(kinds & _ASSERTIVE) or (Kind.AND not in kinds and bool(kinds & {Kind.SIDE, Kind.PLACE}))
        return not asserts or (Kind.WITH not in kinds and self._or_follows(claim.end))

    def _or_follows(self, index: int) -> bool:
        """Whether the list goes on to an "or"."""
        before = Kind.MENTION
        for item in self.items[index + 1 :]:
            if item.kind is Kind.OR:
                return True
            adjective = item.kind is Kind.VERB and before in _LIST  # "…, visible fracture, or …"
            named = item.kind in (Kind.MENTION, Kind.PREDICATE, Kind.COMMA, Kind.AND)
            if item.kind not in _MODIFIERS and not named and not adjective:
                return False
            before = item.kind
        return False

    def _verb_follows(self, index: int) -> bool:
        for item in self.items[index + 1 :]:
            if item.kind is Kind.VERB:
                return True
            if item.kind not in _MODIFIERS:
                return False
        return False

    def _before(self, index: int) -> list[Claim]:
        return [claim for claim in self.found if claim.end < index]

    def _follows(self, index: int) -> bool:
        """Whether a statement follows before the next wall."""
        for claim in self.found:
            if claim.at > index:
                return not any(item.kind in _WALLS for item in self.items[index + 1 : claim.start])
        return False

    def _look_back(self, index: int, kind: Kind) -> None:
        group = self._group_before(index)
        if not group:
            if kind in _FORWARD:
                self.active[_FORWARD[kind]] = _Reach(self.items[index], _FORWARD[kind], index)
            return
        if kind in (Kind.DENIED, Kind.UNSEEN) and self._of_the_end(group[0], index):
            return
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

    def _of_the_end(self, claim: Claim, index: int) -> bool:
        """Whether the cue is about the end of a device: "its tip is not seen" says nothing against the tube."""
        return any(item.kind is Kind.END for item in self.items[claim.end + 1 : index])

    def _group_before(self, index: int) -> list[Claim]:
        """The statement before a cue and those joined to it in a list that has an "and" or "or"."""
        before = self._before(index)
        if not before or any(item.kind in (Kind.BREAK, Kind.THERE) for item in self.items[before[-1].end + 1 : index]):
            return []
        group = [before.pop()]
        listed = False
        while before:
            if before[-1].at == group[-1].at:
                group.append(before.pop())
                continue
            kinds = {item.kind for item in self.items[before[-1].end + 1 : group[-1].start]}
            listed = listed or bool(kinds & {Kind.AND, Kind.OR})
            if not listed or not kinds <= _MODIFIERS | _LIST | {Kind.NEGATION, Kind.ALARM, Kind.PREDICATE}:
                break
            if kinds >= {Kind.COMMA, Kind.AND} and self._asserted_before(before[-1].start):
                break  # "there is A and B, and C is possible"
            group.append(before.pop())
        return group

    def _asserted_before(self, index: int) -> bool:
        return any(item.kind in (Kind.THERE, Kind.VERB) for item in self.items[:index])

    def _deny(self, index: int) -> None:
        if not self._follows(index):
            alone = self.items[index].last - self.items[index].first == 1 and self._closes(index)
            for claim in self._group_before(index) if alone and not self.active else ():
                claim.absent = not claim.normal  # "pneumothorax: none"
            return
        self.active.pop(Kind.HEDGE, None)
        self.active.pop(Kind.RESOLUTION, None)
        self.active[Kind.NEGATION] = _Reach(self.items[index], Kind.NEGATION, index)

    def _hedge(self, index: int) -> None:
        if not self._follows(index):
            self._hedge_before(index)
            return
        denial = self.active.get(Kind.NEGATION)
        if denial is not None:
            if denial.last is None:
                return  # "no possible": the denial decides
            del self.active[Kind.NEGATION]
        self.active[Kind.HEDGE] = _Reach(self.items[index], Kind.HEDGE, index)

    def _hedge_either(self, index: int) -> None:
        following = self.items[index + 1] if index + 1 < len(self.items) else None
        if (
            following is not None
            and following.kind is Kind.COMMA
            and following.first == self.items[index].last
            and Kind.ASIDE in self.active
        ):
            return  # "compared with May,"
        if self._follows(index):
            self._hedge(index)
        elif self._closes(index):
            self._hedge_before(index)  # otherwise words unknown to the tables follow: "opacity, may be fat"

    def _closes(self, index: int) -> bool:
        """Whether no word unknown to the tables follows directly."""
        following = self.items[index + 1].first if index + 1 < len(self.items) else self.last
        return following == self.items[index].last

    def _hedge_before(self, index: int) -> None:
        for claim in self._group_before(index):
            claim.possible = True

    def _explain(self, index: int) -> None:
        denial = self.active.get(Kind.NEGATION)
        if denial is not None and (denial.last is None or not self._joined_since(denial.last, index)):
            denial.linked = True
            return
        self.active.pop(Kind.NEGATION, None)
        if self.items[index].kind is Kind.HEDGE_LINK:
            self.active[Kind.HEDGE] = _Reach(self.items[index], Kind.HEDGE, index)

    def _joined_since(self, claim: Claim, index: int) -> bool:
        return any(item.kind in (Kind.COMMA, Kind.AND) for item in self.items[claim.end + 1 : index])

    def _versus(self, index: int) -> None:
        if Kind.NEGATION in self.active:
            return
        for claim in self._before(index)[-1:]:
            claim.possible = True
        self.active[Kind.HEDGE] = _Reach(self.items[index], Kind.HEDGE, index)

    def _either(self, index: int) -> None:
        """Neither side of an "or" is sure where nothing denies them."""
        before = self._before(index)
        after = [claim for claim in self.found if claim.start > index]
        if self.active.keys() & {Kind.NEGATION, Kind.ASIDE, Kind.RESOLUTION} or not before or not after:
            return
        between = (*self.items[before[-1].end + 1 : index], *self.items[index + 1 : after[0].start])
        if {item.kind for item in between} <= _MODIFIERS and not (before[-1].absent or after[0].normal):
            before[-1].possible = after[0].possible = True

    def _query(self, index: int) -> None:
        before = self._before(index)
        if before:
            before[-1].possible = True
            self.active.clear()
        else:
            self.active[Kind.HEDGE] = _Reach(self.items[index], Kind.HEDGE, index)

    def _resolve(self, index: int) -> None:
        if self._follows(index):
            self._begin(index)
            return
        for claim in self._group_before(index):
            claim.absent, claim.change = True, Change.RESOLVED

    def _begin(self, index: int) -> None:
        self.active[self.items[index].kind] = _Reach(self.items[index], self.items[index].kind, index)

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
}
