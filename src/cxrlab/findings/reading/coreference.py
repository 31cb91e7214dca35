"""What statements take from each other, within a sentence and across sentences: places, changes, pronouns."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.core.vocabulary import OBSERVATIONS, TIPS, Side
from cxrlab.findings.reading.attributes import LIST, MODIFIERS, PLACES, Attributes, ModifierGroup, grades_change
from cxrlab.findings.reading.finding_builder import FindingBuilder
from cxrlab.findings.reading.phrase_tables import Kind, Label, PhraseRule
from cxrlab.findings.reading.phrases import Phrase
from cxrlab.findings.reading.statements import Statement

_EXPLANATIONS = frozenset({Kind.EXPLANATION, Kind.HEDGED_EXPLANATION, Kind.HEDGE_EITHER})
_ALTERNATIVES = frozenset({Kind.COMMA, Kind.OR, Kind.VERSUS, Kind.AND, Kind.ARTICLE, Kind.SEVERITY, Kind.FILLER})
_NEW_STATEMENT = frozenset({Kind.TERMINATION, Kind.EXISTENTIAL})
_MOVED = ("mediastinal shift", "tracheal deviation")  # their side is a direction and not where something lies
_OPPOSITE = {Side.LEFT: Side.RIGHT, Side.RIGHT: Side.LEFT}
_SIDES = {side: PhraseRule(Kind.SIDE, "a side named by comparison", ("side",), side=side) for side in _OPPOSITE}
_NO_SIDE = PhraseRule(Kind.FILLER, "compares with a side that was never named", ("side",))


def resolve_sides(phrases: list[Phrase], earlier: Sequence[FindingBuilder]) -> list[Phrase]:
    """The phrases with "ipsilateral" and "contralateral" as the side that they mean; fillers where none was named."""
    relative = (Label.IPSILATERAL, Label.CONTRALATERAL)
    if not any(phrase.rule.label in relative for phrase in phrases):
        return phrases
    last = next((builder.side for builder in reversed(earlier) if builder.side in _OPPOSITE), None)
    resolved: list[Phrase] = []
    for phrase in phrases:
        if phrase.rule.label in relative:
            opposite = last is not None and phrase.rule.label is Label.CONTRALATERAL
            side = _OPPOSITE[last] if last is not None and opposite else last
            resolved.append(Phrase(_SIDES[side] if side else _NO_SIDE, phrase.first, phrase.last))
            continue
        if phrase.kind in (Kind.SIDE, Kind.LOCATION) and phrase.rule.side in _OPPOSITE:
            last = phrase.rule.side
        resolved.append(phrase)
    return resolved


# ── within a sentence ─────────────────────────────────────────────────────────────────────────────


def share_attributes(
    phrases: Sequence[Phrase], statements: Sequence[Statement], attributes: Sequence[Attributes]
) -> None:
    """Give statements the place and change that they share: "left effusion and atelectasis", and explanations."""
    _share_change(phrases, statements, attributes)
    explained = -1  # the last statement that explains another and takes its place
    for index in range(1, len(statements)):
        a, b, first, second = statements[index - 1], statements[index], attributes[index - 1], attributes[index]
        if not a.observations or not b.observations or a.anchor == b.anchor:
            continue
        between = phrases[a.end + 1 : b.start]
        kinds = [phrase.kind for phrase in between]
        unplaced = not second.groups and _takes_place(b) and b.side is None
        if unplaced and _explains(between):
            source = _explained_attributes(phrases, statements, attributes, index - 1)
            link = next((at for at, kind in enumerate(kinds) if kind in _EXPLANATIONS), 0)
            differential = any(phrase.rule.label is Label.DIFFERENTIAL for phrase in between)
            contrast = bool(_NEW_STATEMENT & set(kinds)) and not differential
            if source.groups and Kind.WITH not in kinds[link:] and not contrast:
                second.groups = [group.copy_place() for group in source.groups]
                explained = index
            continue
        if unplaced and explained == index - 1 and a.possible and b.possible and _lists_alternatives(kinds):
            second.groups, explained = [group.copy_place() for group in first.groups], index
            continue
        if not kinds or not all(kind in (Kind.AND, Kind.OR, Kind.VERSUS) for kind in kinds):
            continue
        first_unplaced = not first.groups and _takes_place(a) and a.side is None
        if first.groups and unplaced:
            second.groups = [group.copy_place() for group in first.groups]
        elif second.groups and first_unplaced and second.last > phrases[b.end].last:
            first.groups = [group.copy_place() for group in second.groups]
    _share_opening(phrases, statements, attributes)
    _share_side(phrases, statements, attributes)


def _share_change(phrases: Sequence[Phrase], statements: Sequence[Statement], attributes: Sequence[Attributes]) -> None:
    """A change after the verb is of the whole list: "tube, line and drain are unchanged"."""
    for index in range(len(statements) - 1, 0, -1):
        first, second = attributes[index - 1], attributes[index]
        kinds = {phrase.kind for phrase in phrases[statements[index - 1].end + 1 : statements[index].start]}
        # "effusion with atelectasis has increased" says so of the effusion too
        listed = bool(kinds) and kinds <= (MODIFIERS | LIST | {Kind.ARTICLE, Kind.WITH}) - {Kind.CHANGE}
        if listed and first.change is None and second.change_after_verb:
            first.change, first.change_after_verb = second.change, True


def _takes_place(statement: Statement) -> bool:
    """Whether a side or a location belongs to what is stated."""
    rows = [OBSERVATIONS[name] for name in statement.observations[:1]]  # none where something is only normal or wrong
    return any(row.sided or row.locations for row in rows)


def _explains(between: Sequence[Phrase]) -> bool:
    """Whether the words between two statements make the second an explanation, or a closer name, of the first."""
    kinds = [phrase.kind for phrase in between]
    if kinds == [Kind.PREPOSITION]:
        return between[0].rule.label is not Label.AFTER
    if any(phrase.rule.label is Label.DIFFERENTIAL for phrase in between):
        return True
    perhaps = kinds == [Kind.COMMA, Kind.HEDGE] and between[1].rule.label is Label.PERHAPS
    return perhaps or bool(set(kinds) & _EXPLANATIONS)


def _explained_attributes(
    phrases: Sequence[Phrase], statements: Sequence[Statement], attributes: Sequence[Attributes], index: int
) -> Attributes:
    """Of what an explanation is of: not what goes with it ("left consolidation with air bronchograms, …")."""
    while index and (_moved(statements[index]) or (not attributes[index].groups and not statements[index].side)):
        kinds = {phrase.kind for phrase in phrases[statements[index - 1].end + 1 : statements[index].start]}
        if Kind.WITH not in kinds or kinds & (_NEW_STATEMENT | {Kind.NEGATION}):
            break
        index -= 1
    return Attributes() if _moved(statements[index]) else attributes[index]


def _moved(statement: Statement) -> bool:
    return len(statement.observations) == 1 and statement.observations[0] in _MOVED


def _lists_alternatives(kinds: Sequence[Kind]) -> bool:
    """Whether a list of explanations continues: "scarring or a small effusion"."""
    return set(kinds) <= _ALTERNATIVES and bool(set(kinds) & {Kind.OR, Kind.VERSUS, Kind.COMMA, Kind.AND})


def _share_opening(
    phrases: Sequence[Phrase], statements: Sequence[Statement], attributes: Sequence[Attributes]
) -> None:
    """All that a body part shows is in that part: "the right lung shows consolidation with atelectasis"."""
    shows = next((at for at, phrase in enumerate(phrases) if phrase.rule.label is Label.SHOWS), len(phrases))
    placed = any(phrase.kind in PLACES for phrase in phrases[:shows])
    if not placed or any(statement.start < shows for statement in statements):
        return
    groups: list[ModifierGroup] = []
    end = shows
    for statement, own in zip(statements, attributes, strict=True):
        kinds = {phrase.kind for phrase in phrases[end + 1 : statement.start]}
        if kinds & (_NEW_STATEMENT | {Kind.VERB, Kind.NEGATION} | PLACES):
            return
        if statement.absent or not statement.observations:
            return
        if groups and not own.groups and _takes_place(statement) and statement.side is None:
            own.groups = [group.copy_place() for group in groups]
        groups, end = groups or own.groups, statement.end


def _share_side(phrases: Sequence[Phrase], statements: Sequence[Statement], attributes: Sequence[Attributes]) -> None:
    """What is adjacent to a finding, or excepted from a normal body part, is on its side."""
    for index in range(1, len(statements)):
        a, b, first, second = statements[index - 1], statements[index], attributes[index - 1], attributes[index]
        labels = {phrase.rule.label for phrase in phrases[a.end + 1 : b.start]}
        adjacent = not a.absent and Label.ADJACENT in labels
        excepted = a.normal and not a.observations and Label.EXCEPT in labels
        side = first.groups[0].side if len(first.groups) == 1 else None
        sided = b.observations and OBSERVATIONS[b.observations[0]].sided and b.side is None and not b.absent
        if not (adjacent or excepted) or side is None or not sided:
            continue
        second.groups = second.groups or [ModifierGroup()]
        if all(group.side is None for group in second.groups):
            for group in second.groups:
                group.side = side


# ── across sentences ──────────────────────────────────────────────────────────────────────────────


def explain_earlier(
    phrases: Sequence[Phrase],
    statements: Sequence[Statement],
    attributes: Sequence[Attributes],
    earlier: Sequence[FindingBuilder],
) -> None:
    """An explanation takes the place of the finding before it: "Opacity at the left base. This may be pneumonia."."""
    if not earlier or earlier[-1].absent or not statements or not statements[0].observations:
        return
    # Whether the words before the first statement make it an explanation of something said before.
    opening = phrases[: statements[0].start]
    pointers = (k for k, one in enumerate(opening) if one.kind is Kind.PRONOUN or one.rule.label is Label.APPEARANCE)
    pointer = next(pointers, len(opening))
    explains = any(phrase.kind in _EXPLANATIONS for phrase in opening[pointer + 1 :])
    if not explains and all(phrase.rule.label is not Label.DIFFERENTIAL for phrase in opening):
        return
    last = earlier[-1]
    if last.name in _MOVED or not OBSERVATIONS[last.name].sided:
        return
    if not _takes_place(statements[0]) or attributes[0].groups or statements[0].side:
        return
    meant = [builder for builder in earlier[-4:] if builder.anchor == last.anchor and builder.name == last.name]
    for statement, own, following in zip(statements, attributes, (*statements[1:], None), strict=True):
        own.groups = own.groups or [
            ModifierGroup(builder.side, [builder.location] if builder.location else [])
            for builder in meant
            if builder.side or builder.location
        ]
        if following is None or not following.possible or not _takes_place(following) or following.side:
            return
        if not _lists_alternatives([phrase.kind for phrase in phrases[statement.end + 1 : following.start]]):
            return


def refine_earlier(phrases: Sequence[Phrase], earlier: Sequence[FindingBuilder]) -> None:
    """A sentence that names nothing is about the finding before it: "It has increased"."""
    if not earlier or not phrases or phrases[0].kind is not Kind.PRONOUN:
        return
    if any(phrase.kind is Kind.NOT_A_FINDING for phrase in phrases):
        return
    last = earlier[-1]
    for index, phrase in enumerate(phrases):
        if phrase.kind is Kind.CHANGE and last.change is None and not last.absent:
            last.change = phrase.rule.change
        elif phrase.kind is Kind.SEVERITY and last.severity is None and not grades_change(phrases, index):
            last.severity = phrase.rule.severity
        elif phrase.kind is Kind.UNIT and last.size is None and last.name not in TIPS:
            last.size = phrase.value
