"""Where the statements of a sentence stand to each other and to a cue: the questions that the rules of scope ask."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.findings.reading.claims import Claim
from cxrlab.findings.reading.cues import ASPECT, HARMLESS
from cxrlab.findings.reading.phrases import Item
from cxrlab.findings.reading.rows import Kind

WALLS = frozenset({Kind.BREAK, Kind.THERE, Kind.COLON})
# Words that bring in something that is there: after them a list of denials has ended.
ASSERTIVE = frozenset({Kind.DEGREE, Kind.CHANGE, Kind.UNIT})
MODIFIERS = ASSERTIVE | {
    Kind.SIDE, Kind.PLACE, Kind.LEVEL, Kind.ORDINAL, Kind.PREPOSITION, Kind.FILLER, Kind.SUBJECT, Kind.ARTICLE,
}  # fmt: skip
LIST = frozenset({Kind.COMMA, Kind.AND, Kind.OR, Kind.VERSUS})


class Line:
    """The items of one sentence with its statements.

    Args:
        items: Of the sentence.
        found: Its statements, in order.
        last: Token after the last of the sentence.
    """

    def __init__(self, items: Sequence[Item], found: Sequence[Claim], last: int) -> None:
        self.items = items
        self.found = found
        self.last = last

    def before(self, index: int) -> list[Claim]:
        """Statements that end before this item."""
        return [claim for claim in self.found if claim.end < index]

    def between(self, one: Claim, two: Claim) -> Sequence[Item]:
        """Items after one statement and before the next."""
        return self.items[one.end + 1 : two.start]

    def follows(self, index: int) -> bool:
        """Whether a statement follows before the next wall."""
        for claim in self.found:
            if claim.at > index:
                return not any(item.kind in WALLS for item in self.items[index + 1 : claim.start])
        return False

    def closes(self, index: int) -> bool:
        """Whether no word unknown to the tables follows directly, nor one that the vocabulary has no name for."""
        end = self.items[index].last
        for item in self.items[index + 1 :]:
            if item.first != end:
                return False
            if item.kind is not Kind.ARTICLE:
                return item.kind is not Kind.ALARM and item.row is not HARMLESS
            end = item.last
        return self.last == end

    def or_follows(self, index: int) -> bool:
        """Whether the list goes on to an "or"."""
        before = Kind.MENTION
        for item in self.items[index + 1 :]:
            if item.kind is Kind.OR:
                return True
            adjective = item.kind is Kind.VERB and before in LIST  # "…, visible fracture, or …"
            named = item.kind in (Kind.MENTION, Kind.PREDICATE, Kind.COMMA, Kind.AND)
            if item.kind not in MODIFIERS and not named and not adjective:
                return False
            before = item.kind
        return False

    def verb_follows(self, index: int) -> bool:
        """Whether nothing but modifiers stands between this item and a verb."""
        for item in self.items[index + 1 :]:
            if item.kind is Kind.VERB:
                return True
            if item.kind not in MODIFIERS:
                return False
        return False

    def joined_since(self, claim: Claim, index: int) -> bool:
        """Whether a list goes on between a statement and this item."""
        return any(item.kind in (Kind.COMMA, Kind.AND) for item in self.items[claim.end + 1 : index])

    def of_the_end(self, claim: Claim, index: int) -> bool:
        """Whether a cue is about the end of a device: "its tip is not seen" says nothing against the tube."""
        return any(item.kind is Kind.END for item in self.items[claim.end + 1 : index])

    def of_an_aspect(self, claim: Claim) -> bool:
        """Whether a doubt is about the cause or the age of a thing, which itself is there."""
        for item in reversed(self.items[: claim.start]):
            if item.row is ASPECT:
                return True
            if item.kind not in MODIFIERS:
                return False
        return False

    def group_before(self, index: int) -> list[Claim]:
        """The statement before a cue and those joined to it in a list that has an "and" or "or"."""
        before = self.before(index)
        if not before or any(item.kind in (Kind.BREAK, Kind.THERE) for item in self.items[before[-1].end + 1 : index]):
            return []
        group = [before.pop()]
        listed = False
        while before:
            if before[-1].at == group[-1].at:
                group.append(before.pop())
                continue
            kinds = {item.kind for item in self.between(before[-1], group[-1])}
            listed = listed or bool(kinds & {Kind.AND, Kind.OR})
            if not listed or not kinds <= MODIFIERS | LIST | {Kind.NEGATION, Kind.ALARM, Kind.PREDICATE}:
                break
            if kinds >= {Kind.COMMA, Kind.AND} and self._asserted_before(before[-1].start):
                break  # "there is A and B, and C is possible"
            group.append(before.pop())
        return group

    def _asserted_before(self, index: int) -> bool:
        return any(item.kind in (Kind.THERE, Kind.VERB) for item in self.items[:index])
