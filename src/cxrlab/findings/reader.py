"""Reads report text into findings: what is present, absent or possible, and the characters that state it.

The stages are the modules of `cxrlab.findings.reading`, in the order in which `read` calls them. What words mean is
in the tables under `reading/tables`; the conventions are in docs/reading.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

from cxrlab.core.errors import DataError, short_repr
from cxrlab.core.records import Finding, Span
from cxrlab.core.vocabulary import TIPS, Change
from cxrlab.findings.reading.assertion import assert_statements
from cxrlab.findings.reading.attributes import ModifierGroup, find_attributes
from cxrlab.findings.reading.coreference import explain_earlier, refine_earlier, resolve_sides, share_attributes
from cxrlab.findings.reading.finding_builder import FindingBuilder, place_tips
from cxrlab.findings.reading.phrase_tables import Kind, Label
from cxrlab.findings.reading.phrases import Phrase, load_matcher
from cxrlab.findings.reading.sentences import Sentence, chest_sentences
from cxrlab.findings.reading.statements import Statement, find_statements
from cxrlab.findings.reading.tokens import tokenize

# What may stand between two names of one thing: "postoperative changes after lobectomy".
_SAME_THING = frozenset({Kind.PREPOSITION, Kind.SIDE, Kind.LOCATION, Kind.LEVEL, Kind.EXPLANATION, Kind.ARTICLE})


@dataclass(frozen=True)
class Reading(Sequence[Finding]):
    """What a text states. It is itself the sequence of its findings."""

    text: str  # what was read, unchanged; every span points into it
    # Statements in the order of the text, each with the span of the words that carry it.
    findings: tuple[Finding, ...] = ()
    normal: tuple[Span, ...] = ()  # spans of statements that something is normal or clear without naming an observation
    # Spans of sentences that sound like a finding and state nothing that the vocabulary knows.
    unread: tuple[Span, ...] = ()

    @property
    def has_statements(self) -> bool:
        """Whether the text states anything about an image: a finding, a denial, or that something is normal."""
        return bool(self.findings or self.normal)

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        return self.findings[index]

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)


def read(text: str | None) -> Reading:
    """Every statement of a report about the image; None, not-a-number and text without a word give an empty reading."""
    if text is None or text != text:  # a data frame holds not-a-number where there is no report
        return Reading("")
    if not isinstance(text, str):
        raise DataError(f"a report is text, not {short_repr(text)}; give the text, or None where there is none.")
    matcher = load_matcher()
    tokens = tokenize(text, matcher.spelling)
    builders: list[FindingBuilder] = []
    normal: list[Span] = []
    unread: list[Span] = []

    def span(first: int, last: int) -> Span:
        return tokens[first].start, tokens[last - 1].end

    for sentence in chest_sentences(tokens, matcher.find(tokens)):
        result = _read_sentence(sentence, builders)
        builders += result.builders
        normal += [span(*part) for part in result.normal]
        if result.out_of_vocabulary and not result.builders and not result.normal:
            unread.append(span(sentence.first, sentence.last))
    findings = tuple(builder.finding(span(builder.first, builder.last)) for builder in builders)
    return Reading(text, findings, tuple(normal), tuple(unread))


@dataclass
class _SentenceResult:
    builders: list[FindingBuilder] = field(default_factory=list)
    normal: list[tuple[int, int]] = field(default_factory=list)  # token ranges
    out_of_vocabulary: bool = False


def _read_sentence(sentence: Sentence, earlier: Sequence[FindingBuilder]) -> _SentenceResult:
    """The findings of one sentence; those of earlier sentences gain what a pronoun adds to them."""
    phrases = resolve_sides(sentence.phrases, earlier)
    statements = find_statements(phrases)
    assert_statements(phrases, statements, sentence.last)
    _drop_headings_and_repeats(phrases, statements, earlier)
    attributes = find_attributes(phrases, statements)
    share_attributes(phrases, statements, attributes)
    explain_earlier(phrases, statements, attributes, earlier)
    # A thing that is named twice in a row is one statement: "postoperative changes after lobectomy".
    for index in range(1, len(statements)):
        a, b, first, second = statements[index - 1], statements[index], attributes[index - 1], attributes[index]
        if not a.observations or a.observations != b.observations or a.dropped or a.absent != b.absent:
            continue
        kinds = [phrase.kind for phrase in phrases[a.end + 1 : b.start]]
        ties = _SAME_THING
        if kinds == [Kind.OR]:  # "ectasia/tortuosity": two words for one thing
            ties = _SAME_THING | {Kind.OR}
        elif a.observations[0] in TIPS:
            ties = _SAME_THING | {Kind.WITH, Kind.VERB, Kind.FILLER}
        if ties.issuperset(kinds) and not (first.groups and second.groups):
            a.dropped = True
            second.groups = second.groups or first.groups
            second.severity, second.change = second.severity or first.severity, second.change or first.change
            second.first = first.first

    result = _SentenceResult()
    for statement, own in zip(statements, attributes, strict=True):
        label = phrases[statement.anchor].rule.label
        unnamed = statement.absent and label is Label.UNNAMED_PLEURAL_ABNORMALITY
        if statement.dropped:
            continue
        if statement.observations and not unnamed:
            groups: Sequence[ModifierGroup | None] = own.groups or (None,)
            result.builders += [
                FindingBuilder(name, statement, own, group) for name in statement.observations for group in groups
            ]
        elif statement.absent:
            result.normal.append((own.first, own.last))
        elif label is not Label.REMARK:
            result.out_of_vocabulary = True
    place_tips(phrases, result.builders, earlier)
    # A masked word ("chest XXXX") was guessed to be a device; only its tip can show that it is one.
    result.builders = [
        builder
        for builder in result.builders
        if builder.tip or phrases[builder.anchor].rule.label is not Label.MASKED_DEVICE
    ]
    if not statements:
        refine_earlier(phrases, earlier)
        result.normal += _normal_without_statement(phrases)
    remarks = (phrases[one.anchor].rule.label is Label.REMARK and not one.absent for one in statements)
    if all(remarks):  # "findings of tuberculosis"
        result.out_of_vocabulary = _asserts_out_of_vocabulary(phrases)
    return result


def _drop_headings_and_repeats(
    phrases: Sequence[Phrase], statements: Sequence[Statement], earlier: Sequence[FindingBuilder]
) -> None:
    """Drop names that are headings ("Lines and tubes: …") or repeat a device ("the course of the catheter is …")."""
    colon = next((index for index, phrase in enumerate(phrases) if phrase.kind is Kind.COLON), -1)
    headed = any(statement.start > colon for statement in statements)
    known = any(builder.name in TIPS and not builder.absent for builder in earlier)
    for statement in statements:
        phrase = phrases[statement.anchor]
        if statement.end < colon and (headed or phrase.rule.label is Label.ALL_DEVICES):
            statement.dropped = True
        bare = statement.observations == ("other device",) and phrase.last - phrase.first == 1 and not statement.absent
        introduced = statement.start > 0 and phrases[statement.start - 1].kind in (Kind.ARTICLE, Kind.SIDE)
        if known and bare and not introduced:
            statement.dropped = True


def _normal_without_statement(phrases: Sequence[Phrase]) -> list[tuple[int, int]]:
    """The token range of a sentence that states "no change" of the whole, or denies what the vocabulary lacks."""
    kinds = {phrase.kind for phrase in phrases}
    of_a_part = any(phrase.kind is Kind.PREDICATE and not phrase.rule.out_of_vocabulary for phrase in phrases)
    if phrases[0].kind is Kind.PRONOUN or Kind.NOT_ASSESSABLE in kinds or of_a_part:
        return []
    stated = (i for i, phrase in enumerate(phrases) if phrase.kind in (Kind.CHANGE, Kind.OUT_OF_VOCABULARY))
    before = {phrase.kind for phrase in phrases[: next(stated, 0)]}
    if Kind.NOT_A_FINDING in before and Kind.COMMA not in before:
        return []
    parts = {phrase.rule.name for phrase in phrases if phrase.kind is Kind.BODY_PART}
    changes = {phrase.rule.change for phrase in phrases if phrase.kind is Kind.CHANGE}
    unknown = any(_is_out_of_vocabulary(phrase) for phrase in phrases)
    negated = bool(kinds & {Kind.NEGATION, Kind.NEGATION_BACKWARD}) and not _asserts_out_of_vocabulary(phrases)
    unchanged = changes == {Change.UNCHANGED} and parts <= {"chest"}
    return [(phrases[0].first, phrases[-1].last)] if (negated if unknown else unchanged) else []


def _asserts_out_of_vocabulary(phrases: Sequence[Phrase]) -> bool:
    """Whether a word that sounds like a finding is neither negated nor excluded."""
    for index, phrase in enumerate(phrases):
        if phrase.kind in (Kind.NEGATION, Kind.NEGATION_BACKWARD, Kind.NOT_A_FINDING):
            return False
        if _is_out_of_vocabulary(phrase):
            return all(later.kind is not Kind.NEGATION_BACKWARD for later in phrases[index + 1 :])
    return False


def _is_out_of_vocabulary(phrase: Phrase) -> bool:
    return phrase.kind is Kind.OUT_OF_VOCABULARY or phrase.rule.out_of_vocabulary
