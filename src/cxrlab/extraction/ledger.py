"""What was asked of a victim, what it answered and what that cost: booked before, written down after.

One unit of the budget is one picture put to the victim. It is booked in the same transaction that checks the budget,
so that no number of threads and processes together spends more; an answer is on the disk before anybody sees it.

A program that is killed leaves questions without an answer. A victim on this machine died with it or costs nothing:
such a question is asked again under the same number and the same unit. A remote victim may have answered and billed:
its unit counts as spent, and the question gets a further attempt that books a further unit. Either way the victim
is never asked for more than the budget that it is paid for.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from cxrlab.core.errors import ConfigError, CxrlabError, RunError
from cxrlab.core.files import make_folder
from cxrlab.extraction import ledger_file as file
from cxrlab.extraction import ledger_rows as rows
from cxrlab.extraction.answers import Answer, Ask
from cxrlab.extraction.records import Query
from cxrlab.extraction.terms import Authorisation, Cost, Statement, Terms

LEDGER = "ledger.sqlite"


class BudgetExceeded(CxrlabError):
    """A question that the budget does not hold."""


@dataclass(frozen=True)
class Ticket:
    """The right to put one question, booked; it ends by `settle`, `release` or `abandon`."""

    ask: Ask
    ledger: Ledger = field(repr=False, compare=False)

    def settle(self, report: str, *, refused: bool = False, tokens: int | None = None, seconds: float = 0.0) -> Query:
        """Write the answer down; it is on the disk when this returns."""
        return self.ledger.settle_many([(self, Answer(report, refused, tokens, seconds))])[0]

    def release(self, reason: str) -> None:
        """Give the unit back: the call failed before it reached the victim."""
        self.ledger.release_many([self], reason)

    def abandon(self, reason: str) -> None:
        """Leave the question without an answer, as a kill would: nobody knows whether it reached the victim."""
        self.ledger.abandon_many([self], reason)


class Ledger:
    """An open ledger; make it with `Ledger.open` and use it in a `with` block. Threads may share it.

    Args:
        path: The file.
        connection: Open for writing.
        presence: The sign that this opening lives.
        terms: What was allowed.
        remote: Whether the victim runs elsewhere.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, presence: file.Presence, terms: Terms, *, remote: bool
    ) -> None:
        self.path = path
        self.terms = terms
        self.remote = remote
        self._connection = connection
        self._presence = presence
        self._turn = threading.RLock()
        self._closed = False

    @classmethod
    def open(cls, path: str | os.PathLike[str], terms: Terms, *, remote: bool = False) -> Ledger:
        """Make the ledger, or go on with it; several processes and threads may have it open at once.

        Args:
            path: The file, usually RUN/ledger.sqlite.
            terms: Must equal those of a ledger that is there, but for the words of the leave, which are added.
            remote: Whether the victim runs elsewhere; see the head of this file for what a kill means then.

        Raises:
            RunError: When the ledger there is of another victim, budget or price, or cannot be used.
            ConfigError: When the victim is remote and nobody's leave is named.
        """
        if remote and not (terms.authorised or "").strip():
            raise ConfigError(f"'{terms.victim}' runs elsewhere; its ledger needs the words of the owner's leave.")
        place = Path(path)
        make_folder(place.parent)
        presence = file.Presence(place)
        try:
            connection = file.connect(place)
        except BaseException:
            presence.end()
            raise
        ledger = cls(place, connection, presence, terms, remote=remote)
        try:
            with ledger._transaction():
                file.make_tables(connection)
                rows.agree(connection, place, terms, remote)
                connection.execute("INSERT INTO openings VALUES (?, ?)", (presence.token, file.now()))
                rows.bury(connection, place, presence.token, counted=remote)
        except BaseException:
            presence.end()
            file.leave(connection)
            raise
        return ledger

    def reserve(self, number: int, round: int, key: str, sha256: str, account: str = "attacker") -> Ticket | Query:
        """Book one unit, or the answer where the question is answered already.

        Returns:
            A `Query` when this number is settled, or when the same pixels were answered before (that costs nothing and
            is written down as cached); otherwise the right to ask.

        Raises:
            BudgetExceeded: When every unit is booked.
            RunError: When the number stands for other pixels, or is being asked by somebody else.
        """
        found = self.reserve_many([Ask(number, round, key, sha256, account)])
        if not found:
            raise self.exceeded()
        return found[0]

    def reserve_many(self, asks: Sequence[Ask]) -> list[Ticket | Query]:
        """`reserve` for several, in order and in one transaction; a shorter list means that the budget ended there."""
        found: list[Ticket | Query] = []
        with self._transaction() as connection:
            for ask in asks:
                one = self._reserve(connection, ask)
                if one is None:
                    break
                found.append(one)
        return found

    def settle_many(self, answered: Sequence[tuple[Ticket, Answer]]) -> list[Query]:
        """Write answers down, all of them or none; they are on the disk when this returns."""
        change = "state = 'settled', report = ?, refused = ?, tokens = ?, cost = ?, seconds = ?, settled_at = ?"
        settled = []
        with self._transaction() as connection:
            for ticket, answer in answered:
                cost = self.terms.price.of(answer.tokens)
                values = (answer.report, answer.refused, answer.tokens, cost, answer.seconds, file.now())
                settled.append(rows.query_of(self._end(connection, ticket, change, values)))
        return settled

    def release_many(self, tickets: Sequence[Ticket], reason: str) -> None:
        """Give units back: these calls failed before they reached the victim."""
        with self._transaction() as connection:
            for ticket in tickets:
                rows.note(connection, ticket.ask.number, reason, counted=False)
                self._end(connection, ticket, "state = 'open', attempts = attempts - 1")
                connection.execute("UPDATE terms SET booked = booked - 1")
            connection.execute("DELETE FROM queries WHERE state = 'open' AND attempts = 0")

    def abandon_many(self, tickets: Sequence[Ticket], reason: str) -> None:
        """Leave questions without an answer; asked again, they cost a further unit of a remote victim."""
        with self._transaction() as connection:
            for ticket in tickets:
                rows.note(connection, ticket.ask.number, reason, counted=self.remote)
                self._end(connection, ticket, "state = 'open'")

    def queries(self) -> list[Query]:
        """Every settled question, by number."""
        with self._transaction("DEFERRED") as connection:
            return rows.settled_queries(connection)

    def statement(self) -> Statement:
        """The ledger in numbers."""
        with self._transaction("DEFERRED") as connection:
            return rows.statement_of(connection)

    @property
    def spent(self) -> int:
        """Units booked: answered, being asked, and lost."""
        return self.statement().spent

    @property
    def left(self) -> int:
        """Units that may still be booked."""
        return self.statement().left

    @property
    def lost(self) -> int:
        """Units that brought no answer and were not given back."""
        return self.statement().lost

    @property
    def cost(self) -> Cost:
        """Money spent."""
        return self.statement().cost

    @property
    def authorisation(self) -> Authorisation | None:
        """Who gave leave and why; None for a victim that needs none."""
        return self.statement().authorisation

    def exceeded(self) -> BudgetExceeded:
        """The error of a budget that is spent."""
        return BudgetExceeded(
            f"the budget of {self.terms.budget:,} queries to '{self.terms.victim}' is spent; every answer so far is "
            f"kept in {self.path}. A larger budget is another audit in another folder."
        )

    def close(self) -> None:
        """Close it; questions still without an answer are left as a kill would leave them. Twice is allowed."""
        with self._turn:
            if self._closed:
                return
            reason = "the ledger was closed before the answer was written"
            try:
                with self._transaction() as connection:
                    rows.forget(connection, self._presence.token, reason, counted=self.remote)
            finally:
                self._closed = True
                file.leave(self._connection)
                self._presence.end()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _reserve(self, connection: sqlite3.Connection, ask: Ask) -> Ticket | Query | None:
        """One question of `reserve_many`; None when the budget is spent."""
        row = rows.row_of(connection, ask.number)
        if row is None and (known := rows.known_answer(connection, ask.sha256)):
            return rows.repeat(connection, ask, known)
        if row is not None and row["sha256"] != ask.sha256:
            raise RunError(
                f"query {ask.number} of {self.path} was asked with other pixels than now ('{row['key']}' then, "
                f"'{ask.key}' now); an audit goes on with the same pool and seed."
            )
        if row is not None and row["state"] == "settled":
            return rows.query_of(row)
        if row is not None and row["state"] == "reserved":
            self._take_over(connection, ask.number)
        further = 1 if row is None or self.remote else 0
        change = "UPDATE terms SET booked = booked + ? WHERE booked + ? <= budget"
        if connection.execute(change, (further, further)).rowcount == 0:
            return None
        rows.write(connection, ask, further, self._presence.token)
        return Ticket(ask, self)

    def _take_over(self, connection: sqlite3.Connection, number: int) -> None:
        """Have the openings that died looked for; a `RunError` when the one that asks this question lives."""
        rows.bury(connection, self.path, self._presence.token, counted=self.remote)
        row = rows.row_of(connection, number)
        if row is not None and row["state"] == "reserved":
            raise RunError(
                f"query {number} of {self.path} is being asked already; wait for it, or take another number."
            )

    def _end(
        self, connection: sqlite3.Connection, ticket: Ticket, change: str, values: tuple[object, ...] = ()
    ) -> sqlite3.Row:
        """The row of a ticket that ends; a `RunError` when it has ended before."""
        number = ticket.ask.number
        ours = "number = ? AND state = 'reserved' AND opening = ?"
        done = connection.execute(
            f"UPDATE queries SET {change}, opening = NULL WHERE {ours}", (*values, number, self._presence.token)
        )
        row = rows.row_of(connection, number)
        if done.rowcount != 1 or row is None:
            raise RunError(f"query {number} of {self.path} is not reserved here; its ticket has ended already.")
        return row

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """All or nothing, one thread at a time; IMMEDIATE for what writes."""
        with self._turn:
            if self._closed:
                raise RunError(f"the ledger {self.path} is closed; open it again.")
            with file.transaction(self._connection, self.path, kind):
                yield self._connection


def read_ledger(path: str | os.PathLike[str]) -> list[Query]:
    """Every settled question of a ledger, by number; nothing is written, also while an audit goes on."""
    with file.reading(Path(path)) as connection:
        return rows.settled_queries(connection)


def read_statement(path: str | os.PathLike[str]) -> Statement:
    """A ledger in numbers; nothing is written. What a killed program was asking counts as being asked."""
    with file.reading(Path(path)) as connection:
        return rows.statement_of(connection)
