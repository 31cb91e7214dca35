"""What was asked of a victim, what it answered and what that cost: booked before, written down after.

One unit of the budget is one picture put to the victim. It is booked in the same transaction that checks the budget,
so that no number of threads and processes together spends more; an answer is on the disk before anybody sees it.

A program that is killed leaves questions without an answer. A victim on this machine died with it or costs nothing:
such a question is asked again under the same number and the same unit. A remote victim may have answered and billed:
its unit counts as spent, and the question gets a further attempt that books a further unit. Either way the victim
is never asked for more than the budget that it is paid for.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from cxrlab.core.errors import ConfigError, CxrlabError, DataError, RunError
from cxrlab.core.files import PRIVATE, make_file, make_folder, os_error
from cxrlab.extraction.records import (
    AuditScope,
    Authorisation,
    Cost,
    LedgerSummary,
    PendingQuery,
    Price,
    Query,
    Response,
)

LEDGER = "ledger.sqlite"


class BudgetExceeded(CxrlabError):
    """A question that the budget does not hold."""


@dataclass(frozen=True)
class Reservation:
    """The right to put one question, booked; it ends by `settle`, `release` or `abandon`."""

    ask: PendingQuery
    ledger: Ledger = field(repr=False, compare=False)

    def settle(self, report: str, *, refused: bool = False, tokens: int | None = None, seconds: float = 0.0) -> Query:
        """Write the answer down; it is on the disk when this returns."""
        return self.ledger.settle_many([(self, Response(report, refused, tokens, seconds))])[0]

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
        self, path: Path, connection: sqlite3.Connection, presence: Presence, terms: AuditScope, *, remote: bool
    ) -> None:
        self.path = path
        self.terms = terms
        self.remote = remote
        self._connection = connection
        self._presence = presence
        self._turn = threading.RLock()
        self._closed = False

    @classmethod
    def open(cls, path: str | os.PathLike[str], terms: AuditScope, *, remote: bool = False) -> Ledger:
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
        presence = Presence(place)
        try:
            connection = connect(place)
        except BaseException:
            presence.end()
            raise
        ledger = cls(place, connection, presence, terms, remote=remote)
        try:
            with ledger._transaction():
                make_tables(connection)
                agree(connection, place, terms, remote)
                connection.execute("INSERT INTO openings VALUES (?, ?)", (presence.token, now()))
                bury(connection, place, presence.token, counted=remote)
        except BaseException:
            presence.end()
            leave(connection)
            raise
        return ledger

    def reserve(self, number: int, round: int, key: str, sha256: str, account: str = "attacker") -> Reservation | Query:
        """Book one unit, or the answer where the question is answered already.

        Returns:
            A `Query` when this number is settled, or when the same pixels were answered before (that costs nothing and
            is written down as cached); otherwise the right to ask.

        Raises:
            BudgetExceeded: When every unit is booked.
            RunError: When the number stands for other pixels, or is being asked by somebody else.
        """
        found = self.reserve_many([PendingQuery(number, round, key, sha256, account)])
        if not found:
            raise self.exceeded()
        return found[0]

    def reserve_many(self, asks: Sequence[PendingQuery]) -> list[Reservation | Query]:
        """`reserve` for several, in order and in one transaction; a shorter list means that the budget ended there."""
        found: list[Reservation | Query] = []
        with self._transaction() as connection:
            for ask in asks:
                one = self._reserve(connection, ask)
                if one is None:
                    break
                found.append(one)
        return found

    def settle_many(self, answered: Sequence[tuple[Reservation, Response]]) -> list[Query]:
        """Write answers down, all of them or none; they are on the disk when this returns."""
        change = "state = 'settled', report = ?, refused = ?, tokens = ?, cost = ?, seconds = ?, settled_at = ?"
        settled = []
        with self._transaction() as connection:
            for ticket, answer in answered:
                cost = self.terms.price.of(answer.tokens)
                values = (answer.report, answer.refused, answer.tokens, cost, answer.seconds, now())
                settled.append(query_of(self._end(connection, ticket, change, values)))
        return settled

    def release_many(self, tickets: Sequence[Reservation], reason: str) -> None:
        """Give units back: these calls failed before they reached the victim."""
        with self._transaction() as connection:
            for ticket in tickets:
                note(connection, ticket.ask.number, reason, counted=False)
                self._end(connection, ticket, "state = 'open', attempts = attempts - 1")
                connection.execute("UPDATE terms SET booked = booked - 1")
            connection.execute("DELETE FROM queries WHERE state = 'open' AND attempts = 0")

    def abandon_many(self, tickets: Sequence[Reservation], reason: str) -> None:
        """Leave questions without an answer; asked again, they cost a further unit of a remote victim."""
        with self._transaction() as connection:
            for ticket in tickets:
                note(connection, ticket.ask.number, reason, counted=self.remote)
                self._end(connection, ticket, "state = 'open'")

    def queries(self) -> list[Query]:
        """Every settled question, by number."""
        with self._transaction("DEFERRED") as connection:
            return settled_queries(connection)

    def statement(self) -> LedgerSummary:
        """The ledger in numbers."""
        with self._transaction("DEFERRED") as connection:
            return summary_of(connection)

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
                    forget(connection, self._presence.token, reason, counted=self.remote)
            finally:
                self._closed = True
                leave(self._connection)
                self._presence.end()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _reserve(self, connection: sqlite3.Connection, ask: PendingQuery) -> Reservation | Query | None:
        """One question of `reserve_many`; None when the budget is spent."""
        row = row_of(connection, ask.number)
        if row is None and (known := known_answer(connection, ask.sha256)):
            return repeat(connection, ask, known)
        if row is not None and row["sha256"] != ask.sha256:
            raise RunError(
                f"query {ask.number} of {self.path} was asked with other pixels than now ('{row['key']}' then, "
                f"'{ask.key}' now); an audit goes on with the same pool and seed."
            )
        if row is not None and row["state"] == "settled":
            return query_of(row)
        if row is not None and row["state"] == "reserved":
            self._take_over(connection, ask.number)
        further = 1 if row is None or self.remote else 0
        change = "UPDATE terms SET booked = booked + ? WHERE booked + ? <= budget"
        if connection.execute(change, (further, further)).rowcount == 0:
            return None
        write(connection, ask, further, self._presence.token)
        return Reservation(ask, self)

    def _take_over(self, connection: sqlite3.Connection, number: int) -> None:
        """Have the openings that died looked for; a `RunError` when the one that asks this question lives."""
        bury(connection, self.path, self._presence.token, counted=self.remote)
        row = row_of(connection, number)
        if row is not None and row["state"] == "reserved":
            raise RunError(
                f"query {number} of {self.path} is being asked already; wait for it, or take another number."
            )

    def _end(
        self, connection: sqlite3.Connection, ticket: Reservation, change: str, values: tuple[object, ...] = ()
    ) -> sqlite3.Row:
        """The row of a ticket that ends; a `RunError` when it has ended before."""
        number = ticket.ask.number
        ours = "number = ? AND state = 'reserved' AND opening = ?"
        done = connection.execute(
            f"UPDATE queries SET {change}, opening = NULL WHERE {ours}", (*values, number, self._presence.token)
        )
        row = row_of(connection, number)
        if done.rowcount != 1 or row is None:
            raise RunError(f"query {number} of {self.path} is not reserved here; its ticket has ended already.")
        return row

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """All or nothing, one thread at a time; IMMEDIATE for what writes."""
        with self._turn:
            if self._closed:
                raise RunError(f"the ledger {self.path} is closed; open it again.")
            with transaction(self._connection, self.path, kind):
                yield self._connection


def read_ledger(path: str | os.PathLike[str]) -> list[Query]:
    """Every settled question of a ledger, by number; nothing is written, also while an audit goes on."""
    with reading(Path(path)) as connection:
        return settled_queries(connection)


def read_summary(path: str | os.PathLike[str]) -> LedgerSummary:
    """A ledger in numbers; nothing is written. What a killed program was asking counts as being asked."""
    with reading(Path(path)) as connection:
        return summary_of(connection)


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


def repeat(connection: sqlite3.Connection, ask: PendingQuery, known: sqlite3.Row) -> Query:
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


def write(connection: sqlite3.Connection, ask: PendingQuery, further: int, token: str) -> None:
    """A reservation that books `further` units, new or of a question that was left open."""
    connection.execute(
        "INSERT INTO queries (number, round, key, sha256, account, state, attempts, opening, reserved_at) "
        "VALUES (?, ?, ?, ?, ?, 'reserved', ?, ?, ?) ON CONFLICT (number) DO UPDATE SET state = 'reserved', "
        "attempts = attempts + excluded.attempts, opening = excluded.opening, reserved_at = excluded.reserved_at",
        (ask.number, ask.round, ask.key, ask.sha256, ask.account, further, token, now()),
    )


def terms_of(connection: sqlite3.Connection) -> tuple[AuditScope, bool] | None:
    """What was allowed and whether the victim runs elsewhere; None for a ledger that is being made."""
    row = connection.execute("SELECT * FROM terms").fetchone()
    if row is None:
        return None
    price = Price(row["per_query"], row["per_1k_tokens"], row["currency"])
    leave = authorisation_of(connection)
    return AuditScope(row["victim"], row["budget"], leave.said if leave else None, price), bool(row["remote"])


def authorisation_of(connection: sqlite3.Connection) -> Authorisation | None:
    """The leave that was named last."""
    row = connection.execute("SELECT said, at FROM authorisations ORDER BY rowid DESC LIMIT 1").fetchone()
    return Authorisation(row["said"], row["at"]) if row else None


def agree(connection: sqlite3.Connection, path: Path, terms: AuditScope, remote: bool) -> None:
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


def _compare(path: Path, held: tuple[AuditScope, bool], given: tuple[AuditScope, bool]) -> None:
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


def summary_of(connection: sqlite3.Connection) -> LedgerSummary:
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
    return LedgerSummary(terms, remote, leave, booked, row["answered"], row["refused"], row["cached"], lost, cost)


PATIENCE_S = 60.0  # how long one writer waits for the others
VERSION = 1
# The units booked stand in `terms` and nowhere else; the file itself refuses one more than the budget.
_TABLES = """
CREATE TABLE IF NOT EXISTS terms (
    victim TEXT NOT NULL, budget INTEGER NOT NULL, remote INTEGER NOT NULL, per_query REAL NOT NULL,
    per_1k_tokens REAL NOT NULL, currency TEXT NOT NULL, opened_at TEXT NOT NULL,
    booked INTEGER NOT NULL DEFAULT 0, CHECK (booked BETWEEN 0 AND budget));
CREATE TABLE IF NOT EXISTS authorisations (said TEXT NOT NULL, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS openings (token TEXT PRIMARY KEY, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS queries (
    number INTEGER PRIMARY KEY, round INTEGER NOT NULL, key TEXT NOT NULL, sha256 TEXT NOT NULL, account TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'open', 'settled')), attempts INTEGER NOT NULL, opening TEXT,
    report TEXT, refused INTEGER NOT NULL DEFAULT 0, tokens INTEGER, cost REAL NOT NULL DEFAULT 0,
    seconds REAL NOT NULL DEFAULT 0, cached INTEGER NOT NULL DEFAULT 0, reserved_at TEXT NOT NULL, settled_at TEXT);
CREATE INDEX IF NOT EXISTS by_picture ON queries (sha256);
CREATE TABLE IF NOT EXISTS failures (
    number INTEGER NOT NULL, attempt INTEGER NOT NULL, reason TEXT NOT NULL, counted INTEGER NOT NULL,
    at TEXT NOT NULL);
"""


def now() -> str:
    """This moment, UTC, as ISO 8601 to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def connect(path: Path) -> sqlite3.Connection:
    """The ledger at a path, made where it is not there, ready for several writers; every commit reaches the disk."""
    make_file(path)
    try:
        connection = _connection(f"{path.resolve().as_uri()}?mode=rwc")
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error as error:
        raise unusable(path, error) from error
    if version not in (0, VERSION):
        connection.close()
        raise DataError(f"{path} is a ledger of version {version}; this program reads version {VERSION}.")
    return connection


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The ledger at a path as it is at this moment, for reading alone; a `DataError` where there is none."""
    if not path.is_file():
        raise DataError(f"{path} does not exist; name the ledger.sqlite of an extraction run.")
    connection = _connection(f"{path.resolve().as_uri()}?mode=ro")
    try:
        with transaction(connection, path, "DEFERRED"):
            if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                raise DataError(f"{path} is not a ledger that this program reads; name the ledger.sqlite of a run.")
            yield connection
    finally:
        connection.close()


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path, kind: str = "IMMEDIATE") -> Iterator[None]:
    """All or nothing; IMMEDIATE for what writes, DEFERRED for what reads."""
    try:
        connection.execute(f"BEGIN {kind}")
        yield
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise unusable(path, error) from error
        raise


def make_tables(connection: sqlite3.Connection) -> None:
    """Make what is not there yet; call it inside a transaction."""
    for statement in _TABLES.split(";\n"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def leave(connection: sqlite3.Connection) -> None:
    """Close a connection; the last one folds the companions back into the file."""
    with contextlib.suppress(sqlite3.Error):  # refused while another has it open, whose turn it will be
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


def unusable(path: Path, error: sqlite3.Error) -> RunError | DataError:
    """One sentence for what SQLite could not do with a ledger."""
    reason = str(error).strip().rstrip(".") or type(error).__name__
    if isinstance(error, sqlite3.OperationalError):
        return RunError(f"cannot use the ledger {path}: {reason}.")
    return DataError(f"{path} is damaged or no ledger ({reason}); name the ledger.sqlite of a run, or another folder.")


class Presence:
    """The sign that one opening of a ledger is alive: a locked file beside it.

    Args:
        ledger: Path of the ledger.
    """

    def __init__(self, ledger: Path) -> None:
        self.token = secrets.token_hex(8)
        self._file = _sign(ledger, self.token)
        try:
            self._handle = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE)
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise os_error(error, self._file, "lock") from error

    def end(self) -> None:
        """Take the sign away; ending twice is allowed."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                self._file.unlink()
            os.close(self._handle)
            self._handle = -1


def is_alive(ledger: Path, token: str) -> bool:
    """Whether the opening with this token still runs; the sign of a dead one is removed."""
    file = _sign(ledger, token)
    try:
        handle = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise os_error(error, file, "read") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        with contextlib.suppress(OSError):
            file.unlink()
        return False
    finally:
        os.close(handle)


def _sign(ledger: Path, token: str) -> Path:
    return ledger.parent / f".{ledger.name}.{token}.open"


def _connection(uri: str) -> sqlite3.Connection:
    # Transactions are begun by hand; threads take turns by a lock of the ledger.
    connection = sqlite3.connect(uri, uri=True, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Readers and a writer side by side; another that is just coming or leaving is waited for."""
    limit = time.monotonic() + PATIENCE_S
    while True:
        try:
            if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] == "wal":
                return
            raise sqlite3.OperationalError("this file system cannot hold it, choose a folder on a local disk")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > limit:
                raise
        time.sleep(0.01)
