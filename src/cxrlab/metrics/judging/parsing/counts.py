"""From a judge's answer to its counts: every published format, and a reason where there is no plain reading."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.metrics.judging.parsing.answer_text import Answer, AnswerRegions, Region, answer_regions
from cxrlab.metrics.judging.parsing.count_parts import (
    Found,
    Total,
    Unit,
    contradiction,
    found_in,
    own_units,
    stated_totals,
)
from cxrlab.metrics.judging.parsing.results import CELLS, Cell, Parsed, Reading, told
from cxrlab.metrics.judging.parsing.section_counts import read_sections
from cxrlab.metrics.judging.parsing.structured_counts import read_objects, read_tables

MOST_UNITS = 60  # lists of counts in one answer; no judge that has understood the question writes more


def parse_counts(answer: Answer, *, matched: bool = False, fractions: bool = True) -> Parsed:
    """The twelve counts of an answer, and the matched findings where they were asked for.

    An answer is looked for after the judge's mark, the last one first, else in the whole text. Lists that a report
    holds too are copies and count only where the mark vouches for them. Lists that disagree fail.

    Args:
        answer: What the judge said, its mark and the reports that it was shown.
        matched: Whether matched findings were asked for, as GREEN does.
        fractions: Whether a count may be a fraction, as a mean over readers is.
    """
    words = answer_regions(answer)
    if words.problem is not None:
        return Parsed(Reading.FAILED, reason=words.problem)
    reasons = []
    for region in words.regions:
        units = _units(region.text, answer, fractions)
        if len(units) > MOST_UNITS:
            return Parsed(Reading.FAILED, reason=f"the answer holds more than {MOST_UNITS} lists of counts")
        found = found_in(units, region.text, answer)
        if own := own_units(found, region.text, marked=region.marked) or _vouched(found, region):
            totals = [*stated_totals(region.text, answer), *(total for unit in own for total in unit.totals)]
            parsed = _merged(own, [problem for unit in units for problem in unit.problems], matched)
            return _doubted(parsed, totals, words)
        reasons.append(_why_nothing(found, units, words))
    return Parsed(Reading.FAILED, reason=reasons[0])


def _vouched(found: Sequence[Found], region: Region) -> list[Unit]:
    """Copies that are all that stands after the mark.

    What stands there alone the judge has chosen to say, also where a report would have it say the same. A copy among
    other words is a quotation.
    """
    rest, at = "", 0
    for item in found:
        rest, at = rest + region.text[at : item.unit.start], item.unit.end
    alone = not any(sign.isalnum() for sign in rest + region.text[at:])
    return [item.unit for item in found] if region.marked and alone else []


def _units(text: str, answer: Answer, fractions: bool) -> list[Unit]:
    """Every list of counts in a text; what one reader has read is taken out before the next one looks."""
    objects = read_objects(text, fractions=fractions)
    if len(objects) > MOST_UNITS:
        return objects
    text = _without(text, objects)
    tables = read_tables(text, fractions=fractions)
    if len(tables) > MOST_UNITS:
        return tables
    text = _without(text, tables)
    return [*objects, *tables, *read_sections(text, answer, fractions=fractions)]


def _without(text: str, units: Sequence[Unit]) -> str:
    """The text with units blanked out, every other sign in its place."""
    for unit in units:
        text = text[: unit.start] + "\n" * (unit.end - unit.start) + text[unit.end :]
    return text


def _merged(units: Sequence[Unit], problems: Sequence[str], matched: bool) -> Parsed:
    counts: dict[Cell, float] = {}
    pairs: float | None = None
    for unit in units:
        if unit.clash is not None:
            return Parsed(Reading.FAILED, reason=f"the answer contradicts itself: {unit.clash}")
        for cell, value in unit.counts.items():
            if counts.setdefault(cell, value) != value:
                return Parsed(Reading.FAILED, reason=f"two different answers compete: {told(cell)}")
        if unit.matched is not None:
            if pairs not in (None, unit.matched):
                return Parsed(Reading.FAILED, reason="two different answers compete: matched findings")
            pairs = unit.matched
    missing = [told(cell) for cell in CELLS if cell not in counts]
    missing += ["matched findings"] if matched and pairs is None else []
    ordered = {cell: counts[cell] for cell in CELLS if cell in counts}
    if not missing:
        return Parsed(Reading.PARSED, ordered, pairs)
    because = f" ({problems[0]})" if problems else ""
    shown = "; ".join(missing[:3]) + ("; …" if len(missing) > 3 else "")
    reason = f"{len(missing)} of {len(CELLS) + matched} counts are missing{because}: {shown}"
    return Parsed(Reading.PARTIAL if ordered or pairs is not None else Reading.FAILED, ordered, pairs, reason)


def _doubted(parsed: Parsed, totals: Sequence[Total], words: AnswerRegions) -> Parsed:
    """The same, or a failure where the answer states other totals, or refuses and leaves zeros behind."""
    if parsed.status is Reading.FAILED:
        return parsed
    if wrong := contradiction(parsed.counts, totals):
        return Parsed(Reading.FAILED, reason=f"the answer contradicts itself: {wrong}")
    if words.declined and not any(parsed.counts.values()):
        return Parsed(Reading.FAILED, reason="the judge refuses to answer, and its zeros count nothing")
    return parsed


def _why_nothing(found: Sequence[Found], units: Sequence[Unit], words: AnswerRegions) -> str:
    if found:
        return "the only counts in the answer are a copy of what a report says"
    if clash := next((unit.clash for unit in units if unit.clash), None):
        return f"the answer contradicts itself: {clash}"
    if words.refusal:
        return "the judge refuses to answer"
    if problems := [problem for unit in units for problem in unit.problems]:
        return f"no count could be read: {problems[0]}"
    return "no counts by kind were found in the answer"
