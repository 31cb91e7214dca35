"""Decides which statements are negated, hedged, resolved or not a finding: the scope of every cue of a sentence.

As in NegEx and ConText, a cue opens a scope that runs forward through a list until something is asserted again or a
termination follows; backward cues act on the statements before them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cxrlab.core.vocabulary import OBSERVATIONS, Change, Group
from cxrlab.findings.reading.phrase_tables import Kind, Label, PhraseRule
from cxrlab.findings.reading.phrases import Phrase
from cxrlab.findings.reading.statements import Statement

_TERMINATORS = frozenset({Kind.TERMINATION, Kind.EXISTENTIAL, Kind.COLON})
_BACKWARD = frozenset(
    {Kind.NEGATION_BACKWARD, Kind.HEDGE_BACKWARD, Kind.RESOLUTION_BACKWARD, Kind.NOT_ASSESSABLE, Kind.UNLIKELY}
)
# A backward cue that finds nothing before it acts on what follows: "not seen is a pneumothorax".
_FORWARD = {
    Kind.NEGATION_BACKWARD: Kind.NEGATION,
    Kind.HEDGE_BACKWARD: Kind.HEDGE,
    Kind.RESOLUTION_BACKWARD: Kind.RESOLUTION,
}
# Words that introduce something that is there: after them a list of negated things has ended.
_ASSERTIVE = frozenset({Kind.SEVERITY, Kind.CHANGE, Kind.UNIT})
_MODIFIERS = _ASSERTIVE | {
    Kind.SIDE, Kind.LOCATION, Kind.LEVEL, Kind.ORDINAL, Kind.PREPOSITION, Kind.FILLER, Kind.BODY_PART, Kind.ARTICLE,
}  # fmt: skip
_LIST = frozenset({Kind.COMMA, Kind.AND, Kind.OR, Kind.VERSUS})


def assert_statements(phrases: Sequence[Phrase], statements: Sequence[Statement], last: int) -> None:
    """Set `absent`, `possible`, `change` and `dropped` of the statements of a sentence that ends before token `last`."""
    _Scopes(phrases, statements, last).walk()


class _OpenCue:
    """A forward cue while its scope is open."""

    __slots__ = ("bare", "explains", "index", "kind", "last", "rule")

    def __init__(self, phrase: Phrase, kind: Kind, index: int) -> None:
        self.index = index
        self.kind = kind
        self.rule = phrase.rule
        self.bare = phrase.last - phrase.first == 1  # after "no" a list continues without articles
        self.last: Statement | None = None  # the last statement it acted on
        self.explains = False  # an explanation follows: "no opacity to suggest pneumonia"


class _Scopes:
    """The open cues of one sentence and the statements that they act on."""

    def __init__(self, phrases: Sequence[Phrase], statements: Sequence[Statement], last: int) -> None:
        self.phrases = phrases
        self.statements = statements
        self.last = last
        self.open: dict[Kind, _OpenCue] = {}

    def walk(self) -> None:
        """Go through the sentence once, from left to right."""
        made_at: dict[int, list[Statement]] = {}
        for statement in self.statements:
            made_at.setdefault(statement.anchor, []).append(statement)
        clauses = {statement.start for statement in self.statements if statement.predicative}
        for index, phrase in enumerate(self.phrases):
            if index in clauses:
                self.open = {kind: cue for kind, cue in self.open.items() if cue.last is None}
            for statement in made_at.get(index, ()):
                self._apply(statement)
            if phrase.kind in _TERMINATORS:
                self.open.clear()
            elif phrase.kind in _BACKWARD:
                self._apply_backward(index, phrase.kind)
            elif phrase.kind in _FORWARD_CUES:
                _FORWARD_CUES[phrase.kind](self, index)

    # ── open cues meet a statement ────────────────────────────────────────────────────────────────

    def _apply(self, statement: Statement) -> None:
        for kind, cue in list(self.open.items()):
            if cue.last is not None and cue.last.anchor != statement.anchor and not self._reaches(cue, statement):
                del self.open[kind]
                continue
            cue.last = statement
            cue.explains = False
            if kind is Kind.NEGATION:
                inside = statement.part < cue.index < statement.anchor
                if inside or not statement.normal:  # "no the heart is normal": only "is not normal" negates
                    statement.absent, statement.possible, statement.change = not statement.normal, False, None
            elif kind is Kind.HEDGE:
                statement.possible = statement.possible or not self._of_an_aspect(statement)
            elif kind is Kind.RESOLUTION and not statement.normal:
                statement.absent, statement.change = True, Change.RESOLVED
            elif kind is Kind.NOT_A_FINDING:
                statement.dropped = not _remains_finding(statement, cue.rule)

    def _reaches(self, cue: _OpenCue, statement: Statement) -> bool:
        """Whether the scope of a cue that has acted on a statement extends to the next one."""
        assert cue.last is not None
        between = self.phrases[cue.last.end + 1 : statement.start]
        kinds = {phrase.kind for phrase in between}
        if cue.explains:
            return True
        if cue.kind is Kind.NOT_A_FINDING and Kind.COMMA in kinds and self._verb_follows(statement.end):
            return False
        if cue.rule.label is Label.STATUS_POST and Kind.WITH in kinds and not cue.last.dropped:
            return False  # "status post lobectomy with volume loss": what the operation left is on the image
        if kinds & {Kind.OR, Kind.VERSUS}:
            return True
        if cue.kind is Kind.NEGATION and any(phrase.rule.label is Label.AFTER for phrase in between):
            return False  # "no pneumothorax following pacemaker insertion"
        for phrase in between:  # "no effusion is seen, …": the verb has closed the negation
            if phrase.kind in _LIST or phrase.kind is Kind.WITH:
                break
            if phrase.kind is Kind.VERB:
                return False
        if not kinds & {Kind.COMMA, Kind.AND, Kind.WITH}:
            return True
        introduced = Kind.ARTICLE in kinds and Kind.AND in kinds and cue.bare
        placed = Kind.AND not in kinds and bool(kinds & {Kind.SIDE, Kind.LOCATION})
        asserted = introduced or placed or bool(kinds & _ASSERTIVE)
        return not asserted or (Kind.WITH not in kinds and self._or_follows(statement.end))

    # ── forward cues ──────────────────────────────────────────────────────────────────────────────

    def _open_cue(self, index: int, kind: Kind) -> None:
        self.open[kind] = _OpenCue(self.phrases[index], kind, index)

    def _negate(self, index: int) -> None:
        if not self._statement_follows(index):
            alone = self.phrases[index].last - self.phrases[index].first == 1 and self._ends_sentence(index)
            for statement in self._group_before(index) if alone and not self.open else ():
                statement.absent = not statement.normal  # "pneumothorax: none"
            return
        self.open.pop(Kind.HEDGE, None)
        self.open.pop(Kind.RESOLUTION, None)
        self._open_cue(index, Kind.NEGATION)

    def _hedge(self, index: int) -> None:
        if not self._statement_follows(index):
            if self._ends_sentence(index):  # otherwise words unknown to the tables follow: "pneumonia, possibly viral"
                self._hedge_before(index)
            return
        negation = self.open.get(Kind.NEGATION)
        if negation is not None:
            if negation.last is None:
                return  # "no possible": the negation decides
            del self.open[Kind.NEGATION]
        self._open_cue(index, Kind.HEDGE)

    def _hedge_either(self, index: int) -> None:
        if index and self.phrases[index - 1].rule.label is Label.COMPARISON:
            return  # "compared with May"
        self._hedge(index)

    def _hedge_before(self, index: int) -> None:
        group = self._group_before(index)
        for statement in group if group and not self._of_an_aspect(group[-1]) else ():
            statement.possible = True

    def _explain(self, index: int) -> None:
        negation = self.open.get(Kind.NEGATION)
        if negation is not None and (negation.last is None or not self._joined_since(negation.last, index)):
            negation.explains = True
            return
        self.open.pop(Kind.NEGATION, None)
        if self.phrases[index].kind is Kind.HEDGED_EXPLANATION:
            self._open_cue(index, Kind.HEDGE)

    def _versus(self, index: int) -> None:
        if Kind.NEGATION in self.open:
            return
        for statement in self._before(index)[-1:]:
            statement.possible = True
        self._open_cue(index, Kind.HEDGE)

    def _or(self, index: int) -> None:
        """Neither side of an "or" is certain where nothing negates them."""
        before = self._before(index)
        after = [statement for statement in self.statements if statement.start > index]
        if self.open.keys() & {Kind.NEGATION, Kind.NOT_A_FINDING, Kind.RESOLUTION} or not before or not after:
            return
        one, two = before[-1], after[0]
        between = (*self.phrases[one.end + 1 : index], *self.phrases[index + 1 : two.start])
        same = one.observations == two.observations and not between  # "ectasia/tortuosity": two words for one thing
        if {phrase.kind for phrase in between} <= _MODIFIERS and not (one.absent or two.normal or same):
            one.possible = two.possible = True

    def _question_mark(self, index: int) -> None:
        before = self._before(index)
        if before and not self.phrases[index].value:
            before[-1].possible = True
            self.open.clear()
        else:  # "?infection"
            self._open_cue(index, Kind.HEDGE)

    def _resolve(self, index: int) -> None:
        if self._statement_follows(index):
            self._open_cue(index, Kind.RESOLUTION)
            return
        for statement in self._group_before(index):
            statement.absent, statement.change = True, Change.RESOLVED

    def _exclude(self, index: int) -> None:
        if self.phrases[index].rule.label is Label.CONDITION and index == len(self.phrases) - 1:
            self._hedge_before(index)  # "small effusion, if any"
            return
        self._open_cue(index, Kind.NOT_A_FINDING)

    def _with(self, index: int) -> None:
        """A limit ends where the image is said to show something: "limited evaluation reveals …"."""
        if self.phrases[index].rule.label is Label.SHOWS:
            self._comma(index)

    def _comma(self, index: int) -> None:
        """What follows the comma is said of the image: "compared with the last film, …"."""
        excluded = self.open.get(Kind.NOT_A_FINDING)
        if excluded is not None and excluded.last is None:
            del self.open[Kind.NOT_A_FINDING]

    # ── backward cues ─────────────────────────────────────────────────────────────────────────────

    def _apply_backward(self, index: int, kind: Kind) -> None:
        if kind is Kind.NOT_ASSESSABLE and self._cause_follows(index):
            self.open.pop(Kind.NOT_A_FINDING, None)
        group = self._group_before(index)
        if not group:
            if kind in _FORWARD:
                self._open_cue(index, _FORWARD[kind])
            return
        if kind in (Kind.NEGATION_BACKWARD, Kind.NOT_ASSESSABLE) and self._of_device_end(group[0], index):
            return
        if kind is Kind.HEDGE_BACKWARD and self._of_an_aspect(group[-1]):
            return  # "the cause of the opacity and the effusion is unclear"
        after_comma = self.phrases[index - 1].kind is Kind.COMMA
        if kind is Kind.NOT_ASSESSABLE and after_comma and not group[0].normal:
            return  # "fracture of the humerus, incompletely evaluated"
        for statement in group:
            if kind is Kind.NEGATION_BACKWARD:
                statement.absent, statement.possible = True, False
            elif kind is Kind.UNLIKELY:
                statement.absent = statement.possible = True
            elif kind is Kind.HEDGE_BACKWARD:
                statement.possible, statement.absent = True, statement.normal
            elif kind is Kind.NOT_ASSESSABLE:
                statement.dropped = True
            elif not statement.normal:
                statement.absent, statement.change = True, Change.RESOLVED

    # ── questions about the sentence ──────────────────────────────────────────────────────────────

    def _before(self, index: int) -> list[Statement]:
        return [statement for statement in self.statements if statement.end < index]

    def _group_before(self, index: int) -> list[Statement]:
        """The statement before a cue and those joined to it in a list that has an "and" or "or"."""
        before = self._before(index)
        ends = (Kind.TERMINATION, Kind.EXISTENTIAL)
        if not before or any(phrase.kind in ends for phrase in self.phrases[before[-1].end + 1 : index]):
            return []
        group = [before.pop()]
        listed = False
        while before:
            if before[-1].anchor == group[-1].anchor:
                group.append(before.pop())
                continue
            kinds = {phrase.kind for phrase in self.phrases[before[-1].end + 1 : group[-1].start]}
            listed = listed or bool(kinds & {Kind.AND, Kind.OR})
            if not listed or not kinds <= _MODIFIERS | _LIST | {Kind.NEGATION, Kind.OUT_OF_VOCABULARY, Kind.PREDICATE}:
                break
            opening = self.phrases[: before[-1].start]
            if kinds >= {Kind.COMMA, Kind.AND} and any(p.kind in (Kind.EXISTENTIAL, Kind.VERB) for p in opening):
                break  # "there is A and B, and C is possible"
            group.append(before.pop())
        return group

    def _statement_follows(self, index: int) -> bool:
        """Whether a statement follows before the next terminator."""
        for statement in self.statements:
            if statement.anchor > index:
                return not any(phrase.kind in _TERMINATORS for phrase in self.phrases[index + 1 : statement.start])
        return False

    def _ends_sentence(self, index: int) -> bool:
        """Whether no word unknown to the tables or the vocabulary follows directly."""
        end = self.phrases[index].last
        for phrase in self.phrases[index + 1 :]:
            if phrase.first != end:
                return False
            if phrase.kind is not Kind.ARTICLE:
                return phrase.kind is not Kind.OUT_OF_VOCABULARY and phrase.rule.label is not Label.HARMLESS_SHADOW
            end = phrase.last
        return self.last == end

    def _or_follows(self, index: int) -> bool:
        """Whether the list continues to an "or"."""
        before = Kind.MENTION
        for phrase in self.phrases[index + 1 :]:
            if phrase.kind is Kind.OR:
                return True
            adjective = phrase.kind is Kind.VERB and before in _LIST  # "…, visible fracture, or …"
            named = phrase.kind in (Kind.MENTION, Kind.PREDICATE, Kind.COMMA, Kind.AND)
            if phrase.kind not in _MODIFIERS and not named and not adjective:
                return False
            before = phrase.kind
        return False

    def _verb_follows(self, index: int) -> bool:
        """Whether nothing but modifiers stands between this phrase and a verb."""
        following = next((phrase for phrase in self.phrases[index + 1 :] if phrase.kind not in _MODIFIERS), None)
        return following is not None and following.kind is Kind.VERB

    def _cause_follows(self, index: int) -> bool:
        """Whether what limits the view follows: "limited by low lung volumes" says that they are low."""
        following = self.phrases[index + 1] if index + 1 < len(self.phrases) else None
        return following is not None and (following.rule.label is Label.BY or following.kind is Kind.EXPLANATION)

    def _joined_since(self, statement: Statement, index: int) -> bool:
        """Whether a list continues between a statement and this phrase."""
        return any(phrase.kind in (Kind.COMMA, Kind.AND) for phrase in self.phrases[statement.end + 1 : index])

    def _of_device_end(self, statement: Statement, index: int) -> bool:
        """Whether a cue is about the end of a device: "its tip is not seen" does not negate the tube."""
        return any(phrase.kind is Kind.DEVICE_END for phrase in self.phrases[statement.end + 1 : index])

    def _of_an_aspect(self, statement: Statement) -> bool:
        """Whether a doubt is about the cause or the age of a thing, which itself is there."""
        for phrase in reversed(self.phrases[: statement.start]):
            if phrase.rule.label is Label.ASPECT:
                return True
            if phrase.kind not in _MODIFIERS:
                return False
        return False


def _remains_finding(statement: Statement, cue: PhraseRule) -> bool:
    """Whether a statement is a finding despite the cue: an operation after "status post", a device that limits."""
    if not statement.observations:
        return False
    device = OBSERVATIONS[statement.observations[0]].group is Group.DEVICE
    if cue.label is Label.STATUS_POST:
        return device or statement.observations == ("postsurgical change",)
    return device and cue.label is not Label.HISTORY


_FORWARD_CUES: Mapping[Kind, Callable[[_Scopes, int], None]] = {
    Kind.NEGATION: _Scopes._negate,
    Kind.HEDGE: _Scopes._hedge,
    Kind.HEDGE_EITHER: _Scopes._hedge_either,
    Kind.HEDGED_EXPLANATION: _Scopes._explain,
    Kind.EXPLANATION: _Scopes._explain,
    Kind.VERSUS: _Scopes._versus,
    Kind.OR: _Scopes._or,
    Kind.QUESTION_MARK: _Scopes._question_mark,
    Kind.RESOLUTION: _Scopes._resolve,
    Kind.NOT_A_FINDING: _Scopes._exclude,
    Kind.COMMA: _Scopes._comma,
    Kind.WITH: _Scopes._with,
}
