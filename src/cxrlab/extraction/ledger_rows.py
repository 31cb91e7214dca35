"""Rows of a ledger: read as records, agreed on when it is opened, and left by openings that have ended."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from cxrlab.core.errors import RunError
from cxrlab.extraction.answers import Ask
from cxrlab.extraction.ledger_file import is_alive, now
from cxrlab.extraction.records import Query
from cxrlab.extraction.terms import Authorisation, Cost, Price, Statement, Terms


def row_of(connection: sqlite3.Connection, number: int) -> sqlite3.Row | None:
    """The question of this number, whatever became of it."""
    found: sqlite3.Row | None = connection.execute("SELECT * FROM queries WHERE number = ?", (number,)).fetchone()
    return found


def query_of(row: sqlite3.Row) -> Query:
    """A settled question as a record."""
    return Query(
        number=row["number"],
        round=row["round"],
        key=row["key"],
        sha256=row["sha256"],
        report=row["report"],
        refused=bool(row["refused"]),
        tokens=row["tokens"],
        cost=row["cost"],
        seconds=row["seconds"],
        cached=bool(row["cached"]),
        account=row["account"],
    )


def settled_queries(connection: sqlite3.Connection) -> list[Query]:
    """Every settled question, by number."""
    return [
        query_of(row) for row in connection.execute("SELECT * FROM queries WHERE state = 'settled' ORDER BY number")
    ]


def known_answer(connection: sqlite3.Connection, sha256: str) -> sqlite3.Row | None:
    """The first settled question with these pixels."""
    found: sqlite3.Row | None = connection.execute(
        "SELECT * FROM queries WHERE sha256 = ? AND state = 'settled' ORDER BY number LIMIT 1", (sha256,)
    ).fetchone()
    return found


def repeat(connection: sqlite3.Connection, ask: Ask, known: sqlite3.Row) -> Query:
    """Settle a question from an earlier one with the same pixels."""
    connection.execute(
        "INSERT INTO queries (number, round, key, sha256, account, state, attempts, report, refused, tokens, cached, "
        "reserved_at, settled_at) VALUES (?, ?, ?, ?, ?, 'settled', 0, ?, ?, ?, 1, ?, ?)",
        (ask.number, ask.round, ask.key, ask.sha256, ask.account)
        + (known["report"], known["refused"], known["tokens"], now(), now()),
    )
    row = row_of(connection, ask.number)
    assert row is not None
    return query_of(row)


def write(connection: sqlite3.Connection, ask: Ask, further: int, token: str) -> None:
    """A reservation that books `further` units, new or of a question that was left open."""
    connection.execute(
        "INSERT INTO queries (number, round, key, sha256, account, state, attempts, opening, reserved_at) "
        "VALUES (?, ?, ?, ?, ?, 'reserved', ?, ?, ?) ON CONFLICT (number) DO UPDATE SET state = 'reserved', "
        "attempts = attempts + excluded.attempts, opening = excluded.opening, reserved_at = excluded.reserved_at",
        (ask.number, ask.round, ask.key, ask.sha256, ask.account, further, token, now()),
    )


def terms_of(connection: sqlite3.Connection) -> tuple[Terms, bool] | None:
    """What was allowed and whether the victim runs elsewhere; None for a ledger that is being made."""
    row = connection.execute("SELECT * FROM terms").fetchone()
    if row is None:
        return None
    price = Price(row["per_query"], row["per_1k_tokens"], row["currency"])
    leave = authorisation_of(connection)
    return Terms(row["victim"], row["budget"], leave.said if leave else None, price), bool(row["remote"])


def authorisation_of(connection: sqlite3.Connection) -> Authorisation | None:
    """The leave that was named last."""
    row = connection.execute("SELECT said, at FROM authorisations ORDER BY rowid DESC LIMIT 1").fetchone()
    return Authorisation(row["said"], row["at"]) if row else None


def agree(connection: sqlite3.Connection, path: Path, terms: Terms, remote: bool) -> None:
    """Write the terms down, or check that they are those of the ledger; another leave is added to the first."""
    held = terms_of(connection)
    if held is None:
        price = terms.price
        connection.execute(
            "INSERT INTO terms (victim, budget, remote, per_query, per_1k_tokens, currency, opened_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (terms.victim, terms.budget, remote, price.per_query, price.per_1k_tokens, price.currency, now()),
        )
    else:
        _compare(path, held, (terms, remote))
    if terms.authorised and (held is None or held[0].authorised != terms.authorised):
        connection.execute("INSERT INTO authorisations VALUES (?, ?)", (terms.authorised, now()))


def _compare(path: Path, held: tuple[Terms, bool], given: tuple[Terms, bool]) -> None:
    pairs: dict[str, tuple[Any, Any]] = {
        "victim": (held[0].victim, given[0].victim),
        "budget": (held[0].budget, given[0].budget),
        "price": (held[0].price, given[0].price),
        "remote": (held[1], given[1]),
    }
    for name, (old, new) in pairs.items():
        if old != new:
            raise RunError(
                f"{path} was opened with {name}={old} and is now asked for with {name}={new}; "
                "give the same, or choose another folder."
            )


def note(connection: sqlite3.Connection, number: int, reason: str, *, counted: bool) -> None:
    """Write down that an attempt brought no answer; `counted` when its unit stays spent."""
    connection.execute(
        "INSERT INTO failures SELECT number, attempts, ?, ?, ? FROM queries WHERE number = ?",
        (reason, counted, now(), number),
    )


def forget(connection: sqlite3.Connection, token: str, reason: str, *, counted: bool) -> None:
    """End an opening: what it had reserved is open again."""
    mine = "SELECT number FROM queries WHERE state = 'reserved' AND opening = ?"
    for (number,) in connection.execute(mine, (token,)).fetchall():
        note(connection, number, reason, counted=counted)
    connection.execute(
        "UPDATE queries SET state = 'open', opening = NULL WHERE state = 'reserved' AND opening = ?", (token,)
    )
    connection.execute("DELETE FROM openings WHERE token = ?", (token,))


def bury(connection: sqlite3.Connection, path: Path, own: str, *, counted: bool) -> None:
    """End the openings whose process has ended without a word."""
    for (token,) in connection.execute("SELECT token FROM openings WHERE token != ?", (own,)).fetchall():
        if not is_alive(path, token):
            forget(connection, token, "the program ended before the answer was written", counted=counted)


def statement_of(connection: sqlite3.Connection) -> Statement:
    """The ledger in numbers; call it inside a transaction, so that they belong together."""
    held = terms_of(connection)
    if held is None:
        raise RunError("the ledger holds no terms; it was never opened by an audit.")
    terms, remote = held
    booked = int(connection.execute("SELECT booked FROM terms").fetchone()[0])
    row = connection.execute(
        "SELECT COALESCE(SUM(state = 'settled' AND NOT cached), 0) AS answered, "
        "COALESCE(SUM(state = 'settled' AND NOT cached AND refused), 0) AS refused, "
        "COALESCE(SUM(cached), 0) AS cached, COALESCE(SUM(state = 'reserved'), 0) AS asked, "
        "COALESCE(SUM(cost), 0.0) AS cost, "
        "COALESCE(SUM(state = 'settled' AND NOT cached AND tokens IS NULL), 0) AS untold FROM queries"
    ).fetchone()
    lost = booked - row["answered"] - row["asked"] if remote else 0
    # A lost attempt may have been billed: its fixed price is counted, its tokens nobody knows.
    amount = row["cost"] + lost * terms.price.per_query
    cost = Cost(amount, terms.price.currency, row["untold"] + lost if terms.price.per_1k_tokens else 0)
    leave = authorisation_of(connection)
    return Statement(terms, remote, leave, booked, row["answered"], row["refused"], row["cached"], lost, cost)
