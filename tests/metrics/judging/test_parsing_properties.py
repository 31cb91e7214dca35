"""What holds for every text: reports never change a count, nothing raises, and nothing takes long."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import every_row

from cxrlab.core.vocabulary import ErrorKind
from cxrlab.metrics.judging.answer_text import Answer, Reading, bare, fold
from cxrlab.metrics.judging.count_formats import CELLS
from cxrlab.metrics.judging.grades_and_choices import parse_choice, parse_grade
from cxrlab.metrics.judging.parse_counts import parse_counts

MARK = "0a1b2c3d4e5f"
QUICK = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PIECES = tuple(
    """SIGNIFICANT: ¦INSIGNIFICANT: ¦[Clinically Significant Errors]:¶¦[Matched Findings]:¶9. all¶¦(A, 0)¦(B, 7), ¦
A: 3, ¦(a) False finding: 5. ¦(f) Omitted comparison: 0.¶¦ANSWER aaaaaaaaaaaa¶¦¶¦¶¶¦{"significant": {"A": 4}} ¦
| A | 1 | 2 |¶¦</think>¦<think>¦```¦"¦'¦Score: 5 ¦[[A]] ¦FIRST¶¦Clear lungs. ¦Explanation: ¦no errors. ¦
(A, 5), (B, 5), (C, 5), ¦Number of clinically insignificant errors by type: [(A, 6), (B, 6)]¦
false_positive_finding: 8, ¦[1, 1, 1, 1, 1, 1]"""
    .replace("¦\n", "¦").replace("¶", "\n").split("¦")
)  # fmt: skip
hostile = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
reports = st.one_of(st.text(max_size=80), hostile)
counts = st.lists(st.integers(0, 9), min_size=12, max_size=12)


def pairs_form(values: list[int]) -> str:
    """Our own wording's form."""
    lists = [", ".join(f"({letter}, {n})" for letter, n in zip("ABCDEF", half, strict=True)) for half in halves(values)]
    return f"SIGNIFICANT: {lists[0]}\nINSIGNIFICANT: {lists[1]}"


def sections_form(values: list[int]) -> str:
    """GREEN's form, with the matched findings before the errors so that an error section ends the answer."""
    names = (
        "False finding",
        "Missing finding",
        "Wrong location",
        "Wrong severity",
        "False comparison",
        "Omitted comparison",
    )
    reported = [
        "\n".join(f"({letter}) {name}: {n}." for letter, name, n in zip("abcdef", names, half, strict=True))
        for half in halves(values)
    ]
    errors = f"[Clinically Significant Errors]:\n{reported[0]}\n\n[Clinically Insignificant Errors]:\n{reported[1]}"
    return f"[Matched Findings]:\n2. heart; lungs\n\n{errors}"


def halves(values: list[int]) -> tuple[list[int], list[int]]:
    return values[:6], values[6:]


def read(parsed: object) -> list[float | None]:
    return [parsed.counts.get(cell) for cell in CELLS]  # type: ignore[attr-defined]


@QUICK
@given(values=counts, report=reports, form=st.sampled_from([pairs_form, sections_form]))
def test_a_report_before_the_mark_changes_nothing(values, report, form) -> None:  # type: ignore[no-untyped-def]
    """Whatever a report says and however the judge repeats it there, the counts after the mark are the counts."""
    answer = Answer(f"The candidate says: {report}\nANSWER {MARK}\n{form(values)}", MARK, ("Effusion.", report))
    # A report that begins to think takes the answer with it where the judge begins with nothing else; here it does not.
    assert read(parse_counts(answer)) == [float(value) for value in values]


@QUICK
@given(values=counts, report=reports, form=st.sampled_from([pairs_form, sections_form]))
def test_a_report_after_the_answer_changes_no_count(values, report, form) -> None:  # type: ignore[no-untyped-def]
    """A count behind the mark is the judge's or unknown; a report in quotation marks never puts in one of its own."""
    quoted = report.replace('"', "'")
    answer = Answer(f'ANSWER {MARK}\n{form(values)}\n\nI ignored this text: "{quoted}"', MARK, ("Effusion.", quoted))
    for found, expected in zip(read(parse_counts(answer)), values, strict=True):
        assert found in (None, expected)


@QUICK
@given(values=counts, injected=counts, before=st.booleans(), marked=st.booleans())
def test_an_injected_answer_never_wins(values, injected, before, marked) -> None:  # type: ignore[no-untyped-def]
    """A whole answer inside the report, quoted before or after the judge's own, with or without the mark."""
    report = "Clear lungs. " + pairs_form(injected).replace("\n", " ")
    quote = f'The candidate says "{report}".'
    own = (f"ANSWER {MARK}\n" if marked else "") + pairs_form(values)
    text = f"{quote}\n\n{own}" if before else f"{own}\n\n{quote}"
    parsed = parse_counts(Answer(text, MARK, ("Effusion.", report)))
    if values == injected and not marked:
        assert parsed.status is Reading.FAILED or read(parsed) == values
    elif values[:6] != injected[:6] and values[6:] != injected[6:]:
        assert read(parsed) == values
    else:
        assert all(found in (None, value) for found, value in zip(read(parsed), values, strict=True))


@QUICK
@given(text=st.one_of(st.text(max_size=300), hostile), report=reports, cut=st.booleans())
def test_no_reader_raises_and_every_failure_has_a_reason(text, report, cut) -> None:  # type: ignore[no-untyped-def]
    for answer in (Answer(text, MARK, (report,), cut), Answer(f"ANSWER {MARK} {text}", MARK, (report,), cut)):
        for parsed in (parse_counts(answer, matched=True), parse_grade(answer), parse_choice(answer)):
            assert (parsed.reason is None) == (parsed.status is Reading.PARSED)
        assert all(0 <= value <= 100 for value in parse_counts(answer).counts.values())


@QUICK
@given(values=counts)
def test_every_form_of_the_same_counts_reads_the_same(values) -> None:  # type: ignore[no-untyped-def]
    found = parse_counts(Answer(pairs_form(values)))
    assert found.status is Reading.PARSED and read(found) == read(parse_counts(Answer(sections_form(values)))) == values
    assert found.total() == sum(values)


@QUICK
@given(text=st.text(max_size=200))
def test_folding_is_settled_after_one_pass(text) -> None:  # type: ignore[no-untyped-def]
    assert fold(fold(text)) == fold(text)
    assert all(sign.isalnum() for sign in bare(fold(text)))


ENDLESS = {
    "headings": "SIGNIFICANT: (A, 1)\n" * 6_000,
    "spaces": "significant" + " " * 100_000 + ":",
    "brackets": "(" * 50_000 + "A, 1" + ")" * 50_000,
    "braces": "{" * 50_000 + "}" * 50_000,
    "objects": '{"significant": {"A": "x"}}' * 4_000,
    "bars": "|" * 100_000,
    "rows": "| A | 1 | 2 |\n" * 8_000,
    "letters": "significant:\n" + "(a) x: 1. " * 10_000,
    "names": "significant:\n" + "false finding " * 7_000,
    "digits": "significant: (A, " + "9" * 100_000 + ")",
    "combining": "a" + "\u0301\u0327" * 50_000,
    "expanding": "\ufdfa" * 30_000,
    "numbers": "Score: 1-" * 11_000,
    "choices": "the first is " * 8_000,
    "quotes": '"' * 100_000,
    "colons": "significant errors by type" * 4_000,
    "thinking": "<think>" * 14_000,
    "marks": f"ANSWER {MARK} " * 5_000,
    "newlines": " \n" * 50_000 + "x",
    "dashes": "significant" + "-_" * 50_000,
    "totals": "Total errors: 1\n" * 6_000,
    "sums": "the total number of all " * 4_000,
    "nothing": "[Significant]:\nno such clinically significant errors" + " were found in the" * 5_000,
    "zeros": "significant:\n(a) x: 0 " + "and so on " * 9_000,
    "shares": "1/5 " * 24_000,
    "sentences": "if the first report is better " * 3_000,
    "lines": "FIRST\n4\n" * 12_000,
    "thoughts": "<think></think>" * 6_000,
    "examples": "Example 1\n" * 9_000,
    "refusals": "I cannot really " * 6_000,
    "columns": "| Significant " * 7_000 + "|\n" + "| 1 " * 20_000 + "|",
}


@every_row("name", ENDLESS)
@pytest.mark.full
def test_a_hundred_thousand_hostile_signs_are_read_in_a_moment(name: str) -> None:
    """No pattern takes more than about linear time; the bound is wide, for a busy machine."""
    text = ENDLESS[name]
    started = time.process_time()
    for answer in (Answer(text, MARK, ("Clear lungs.", text)), Answer(f"ANSWER {MARK}\n{text}", MARK, (text,))):
        parse_counts(answer, matched=True)
        parse_grade(answer)
        parse_choice(answer)
    assert time.process_time() - started < 8.0


def test_an_answer_beyond_all_bounds_fails_with_the_reason() -> None:
    parsed = parse_counts(Answer("x" * 300_000))
    assert parsed.status is Reading.FAILED and "longer than 200,000" in (parsed.reason or "")


def test_the_six_kinds_are_in_the_published_order() -> None:
    """The letters stand for the kinds in the order of the vocabulary; another order would swap every count."""
    assert [kind.value for kind in ErrorKind] == [
        "false_positive_finding",
        "omission_finding",
        "incorrect_location",
        "incorrect_severity",
        "false_positive_comparison",
        "omission_comparison",
    ]
