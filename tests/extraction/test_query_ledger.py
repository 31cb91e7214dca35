"""What a ledger books, remembers and refuses, in numbers small enough to count by hand."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import recording_victims as helper

from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.extraction.query_ledger import BudgetExceeded, Ledger, Reservation, read_ledger, read_summary
from cxrlab.extraction.records import AuditScope, PendingQuery, Price, Query, Response

A, B, C = "a" * 64, "b" * 64, "c" * 64
LEAVE = "the owner, for a test"


def opened(
    folder: Path, budget: int = 3, *, remote: bool = False, price: Price | None = None, victim: str = "stub:normal"
) -> Ledger:
    terms = AuditScope(victim, budget, LEAVE if remote else None, price or Price())
    return Ledger.open(folder / "ledger.sqlite", terms, remote=remote)


def ticket(ledger: Ledger, number: int, sha256: str) -> helper.Ticket:
    found = helper.reserve(ledger, number, 0, f"p{number}", sha256)
    assert isinstance(found, helper.Ticket)
    return found


def test_a_question_is_booked_then_settled_then_known(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        first = ticket(ledger, 0, A)
        assert (ledger.statement().spent, ledger.left, ledger.queries()) == (1, 2, [])
        query = first.settle("Clear lungs.", tokens=3, seconds=0.5)
        assert query == Query(0, 0, "p0", A, "Clear lungs.", tokens=3, seconds=0.5)
        assert helper.reserve(ledger, 0, 0, "p0", A) == query  # the same number again: resumed
        again = helper.reserve(ledger, 1, 2, "other", A, "second account")  # the same pixels: cached
        assert again == Query(1, 2, "other", A, "Clear lungs.", tokens=3, cached=True, account="second account")
        assert (ledger.statement().spent, ledger.left) == (1, 2)
        assert ledger.queries() == [query, again]
    assert read_ledger(tmp_path / "ledger.sqlite") == [query, again]
    assert sorted(os.listdir(tmp_path)) == ["ledger.sqlite"]  # closed, it is one file


def test_the_budget_is_a_hard_stop(tmp_path: Path) -> None:
    with opened(tmp_path, budget=1) as ledger:
        held = ticket(ledger, 0, A)
        with pytest.raises(BudgetExceeded, match="budget of 1 queries to 'stub:normal' is spent"):
            helper.reserve(ledger, 1, 0, "p1", B)
        held.release("no route")
        ticket(ledger, 1, B).settle("x")
        with pytest.raises(BudgetExceeded):
            helper.reserve(ledger, 0, 0, "p0", A)
        assert isinstance(helper.reserve(ledger, 2, 0, "p2", B), Query)  # what is known costs nothing


def test_the_file_itself_refuses_one_unit_too_many(tmp_path: Path) -> None:
    opened(tmp_path, budget=2).close()
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as book, pytest.raises(sqlite3.IntegrityError):
        book.execute("UPDATE terms SET booked = 3")


def test_a_number_stands_for_one_picture(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        held = ticket(ledger, 0, A)
        with pytest.raises(RunError, match="Query 0 of .* 'p0', not 'p0'"):
            helper.reserve(ledger, 0, 0, "p0", B)
        with pytest.raises(RunError, match="Query 0 "):
            helper.reserve(ledger, 0, 0, "p0", A)
        held.settle("x")
        with pytest.raises(RunError, match="Query 0 of .* 'p0', not 'p0'"):
            helper.reserve(ledger, 0, 0, "p0", B)
        with pytest.raises(RunError, match="ended already"):
            held.settle("y")
        assert [query.report for query in ledger.queries()] == ["x"]


def test_several_are_booked_up_to_the_budget_and_settled_together(tmp_path: Path) -> None:
    with opened(tmp_path, budget=2) as ledger:
        found = ledger.reserve([PendingQuery(n, 0, f"p{n}", sha) for n, sha in enumerate((A, B, C))])
        tickets = [one for one in found if isinstance(one, Reservation)]
        assert [one.query.number for one in tickets] == [0, 1]
        ledger.settle([(tickets[1], Response("second"))])
        with pytest.raises(RunError):  # one of the two has ended: neither is written
            ledger.settle([(tickets[0], Response("first")), (tickets[1], Response("second"))])
        assert [query.number for query in ledger.queries()] == [1]


def test_a_batch_with_a_wrong_number_books_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ticket(ledger, 1, B).settle("x")
        with pytest.raises(RunError):
            ledger.reserve([PendingQuery(0, 0, "p0", A), PendingQuery(1, 0, "p1", C)])
        assert ledger.statement().spent == 1


@pytest.mark.parametrize(("remote", "spent", "lost"), [(False, 1, 0), (True, 2, 1)])
def test_a_question_left_without_an_answer_is_queried_again(
    tmp_path: Path, remote: bool, spent: int, lost: int
) -> None:
    """A local victim: the same unit. A remote one may have billed it: a further unit, and the first is lost."""
    ledger = opened(tmp_path, remote=remote, price=Price(per_query=0.25))
    ticket(ledger, 0, A)
    ledger.close()
    with opened(tmp_path, remote=remote, price=Price(per_query=0.25)) as ledger:
        assert (ledger.statement().spent, ledger.statement().lost) == (1, lost)
        ticket(ledger, 0, A).settle("x")
        assert (ledger.statement().spent, ledger.statement().lost, ledger.left) == (spent, lost, 3 - spent)
        assert ledger.statement().cost.amount == 0.25 * spent
        assert [(query.number, query.cost) for query in ledger.queries()] == [(0, 0.25)]


def test_a_release_gives_back_its_own_unit_alone(tmp_path: Path) -> None:
    with opened(tmp_path, remote=True) as ledger:
        ticket(ledger, 0, A).abandon("timed out")
        ticket(ledger, 0, A).release("refused")
        assert (ledger.statement().spent, ledger.statement().lost) == (1, 1)
        ticket(ledger, 0, A).settle("x")
        assert (ledger.statement().spent, ledger.statement().lost) == (2, 1)


def test_a_remote_victim_is_not_queried_again_beyond_the_budget(tmp_path: Path) -> None:
    with opened(tmp_path, budget=1, remote=True) as ledger:
        ticket(ledger, 0, A).abandon("timed out")
        with pytest.raises(BudgetExceeded):
            helper.reserve(ledger, 0, 0, "p0", A)


def test_what_another_opening_asks_is_left_alone_while_it_lives(tmp_path: Path) -> None:
    with opened(tmp_path) as second:
        first = opened(tmp_path)
        held = ticket(first, 0, A)
        with pytest.raises(RunError, match="Query 0 "):
            helper.reserve(second, 0, 0, "p0", A)
        held.settle("x")
        ticket(first, 1, B)
        first.close()
        ticket(second, 1, B).settle("y")
        assert second.statement().spent == 2


def test_money_by_query_and_by_token(tmp_path: Path) -> None:
    """Two answers at 0.01 each, one of 500 tokens at 0.2 a thousand; the other does not tell its tokens."""
    with opened(tmp_path, price=Price(0.01, 0.2, "EUR")) as ledger:
        assert ticket(ledger, 0, A).settle("x", tokens=500).cost == pytest.approx(0.11)
        ticket(ledger, 1, B).settle("y", refused=True)
        helper.reserve(ledger, 2, 0, "p2", A)
        state = ledger.statement()
    assert state == read_summary(tmp_path / "ledger.sqlite")
    assert state.cost.amount == pytest.approx(0.12)
    assert (state.cost.currency, state.cost.unknown) == ("EUR", 1)
    assert (state.spent, state.answered, state.refused, state.cached, state.left) == (2, 2, 1, 1, 1)


def test_it_goes_on_under_the_same_terms_alone(tmp_path: Path) -> None:
    opened(tmp_path).close()
    opened(tmp_path).close()
    with pytest.raises(RunError, match="budget=3, not budget=4"):
        opened(tmp_path, budget=4)
    with pytest.raises(RunError, match="victim=stub:normal, not victim=stub:empty"):
        opened(tmp_path, victim="stub:empty")
    with pytest.raises(RunError, match="price="):
        opened(tmp_path, price=Price(1.0))
    assert sorted(os.listdir(tmp_path)) == ["ledger.sqlite"]


def test_authorisation_is_kept_with_its_time_and_requested(tmp_path: Path) -> None:
    with opened(tmp_path, remote=True) as ledger:
        kept = ledger.statement().authorisation
        assert kept is not None and kept.text == LEAVE and kept.at.endswith("+00:00")
    assert read_summary(tmp_path / "ledger.sqlite").authorisation == kept
    with pytest.raises(ConfigError, match="--i-am-authorised"):
        Ledger.open(tmp_path / "other.sqlite", AuditScope("https://x.org/v1#m", 3, "  "), remote=True)


def test_every_text_comes_back_as_it_was(tmp_path: Path) -> None:
    text = "Zeile\nzwei \N{LUNGS} 'quoted'; DROP TABLE queries; \0 end"
    with opened(tmp_path) as ledger:
        assert ticket(ledger, 0, A).settle(text).report == text
        assert ticket(ledger, 1, B).settle("").report == ""
    assert [query.report for query in read_ledger(tmp_path / "ledger.sqlite")] == [text, ""]


def test_what_is_no_ledger_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_ledger(tmp_path / "none.sqlite")
    (tmp_path / "text.sqlite").write_text("not a database, but long enough to look at " * 30)
    with pytest.raises(DataError, match="no ledger"):
        read_ledger(tmp_path / "text.sqlite")
    with pytest.raises(DataError, match="no ledger"):
        Ledger.open(tmp_path / "text.sqlite", AuditScope("stub:normal", 1))
    with closing(sqlite3.connect(tmp_path / "foreign.sqlite")) as book:
        book.execute("CREATE TABLE t (x)")
    with pytest.raises(DataError, match="not a ledger"):
        read_ledger(tmp_path / "foreign.sqlite")
    ledger = opened(tmp_path)
    ledger.close()
    ledger.close()
    with pytest.raises(RunError, match="closed"):
        helper.reserve(ledger, 0, 0, "p0", A)


@pytest.mark.parametrize("values", [{"per_query": -1.0}, {"per_1k_tokens": float("nan")}])
def test_a_price_is_a_number_from_zero(values: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="price"):
        Price(**values)


def check_crowd(folder: Path) -> None:
    """Fifty calls reached the victim, no more; each is answered once."""
    asked = sorted(map(int, helper.read_lines(folder / helper.QUERY_LOG)))
    assert len(asked) == len(set(asked)) == 50
    state = read_summary(folder / "ledger.sqlite")
    assert (state.spent, state.left, state.answered) == (50, 0, 50)
    assert [query.number for query in read_ledger(folder / "ledger.sqlite")] == asked


def test_eight_threads_never_exceed_the_budget(tmp_path: Path) -> None:
    """Each has an opening of its own; 8 × 25 questions meet a budget of 50."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda place: helper.query_until_exceeded(tmp_path, place, 50), range(8)))
    check_crowd(tmp_path)


def test_eight_threads_on_one_opening_never_exceed_the_budget(tmp_path: Path) -> None:
    def work(place: int) -> None:
        for number in range(100 * place, 100 * place + 25):
            try:
                held = ticket(ledger, number, f"{number:064x}")
            except BudgetExceeded:
                return
            helper.append_lines(tmp_path / helper.QUERY_LOG, str(number))
            held.settle("x")

    with opened(tmp_path, budget=50) as ledger, ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    check_crowd(tmp_path)


def test_eight_processes_never_exceed_the_budget(tmp_path: Path) -> None:
    subprocess.run([sys.executable, helper.__file__, "crowd", str(tmp_path)], check=True, timeout=60)
    check_crowd(tmp_path)
