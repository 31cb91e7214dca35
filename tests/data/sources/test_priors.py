from __future__ import annotations

from tables import every_row

from cxrlab.data.source_tables import StudyDate, parse_date, prior_studies


def test_the_prior_is_the_latest_earlier_study_of_the_same_patient() -> None:
    """Listed out of order; the other patient's study of that day is none of it."""
    visits = [StudyDate("c", "p", "20120101"), StudyDate("a", "p", "20100101"), StudyDate("b", "p", "20110101")]
    assert prior_studies([*visits, StudyDate("x", "q", "20111231")]) == {"c": "b", "b": "a"}


def test_studies_of_one_day_are_not_each_others_prior() -> None:
    """Both have the study before; of the two, the last one listed is the prior of the next."""
    visits = [StudyDate("a", "p", "1"), StudyDate("b", "p", "2"), StudyDate("c", "p", "2"), StudyDate("d", "p", "3")]
    assert prior_studies(visits) == {"b": "a", "c": "a", "d": "c"}


def test_a_study_without_a_date_has_no_prior_and_is_none() -> None:
    assert prior_studies([StudyDate("a", "p", ""), StudyDate("b", "p", "2"), StudyDate("c", "p", "")]) == {}


@every_row(
    ("cell", "moment"),
    [
        ("20140915", "20140915"),
        ("20140915.0", "20140915"),
        ("2014-09-15", "20140915"),
        ("2014-09-15 10:11:12", "20140915"),
        ("2014/09/15", "20140915"),
        ("2014-0915", ""),
        ("15.09.2014", ""),
        ("", ""),
        ("nan", ""),
    ],
)
def test_dates_as_tables_write_them(cell: str, moment: str) -> None:
    assert parse_date(cell) == moment
