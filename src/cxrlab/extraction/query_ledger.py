"""The query ledger: every query is reserved before it is sent, and its answer and cost are written before it is used.

One unit of the budget is one image sent to the victim. It is reserved in the same transaction that checks the budget,
so that no number of threads and processes together spends more.

A program that is killed leaves queries without an answer. A victim on this machine costs nothing: such a query is sent
again under the same number and the same unit. A remote victim may have answered and billed: its unit counts as spent,
and sending the query again takes another unit.
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
from dataclasses import dataclass
from pathlib import Path

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
VERSION = 1
LOCK_TIMEOUT_S = 60.0  # how long one writer waits for the others
# The units reserved stand in `terms` and nowhere else; the file itself refuses one more than the budget.
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


class BudgetExceeded(CxrlabError):
    """A query beyond the budget."""


@dataclass(frozen=True)
class Reservation:
    """The right to send one query; it ends by `Ledger.settle`, `release` or `abandon`."""

    query: PendingQuery


class Ledger:
    """An open ledger; make it with `Ledger.open` and use it in a `with` block. Threads may share it."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, liveness: LivenessLock, terms: AuditScope, *, remote: bool
    ) -> None:
        self.path, self.terms, self.remote = path, terms, remote
        self._connection, self._liveness = connection, liveness
        self._lock = threading.RLock()
        self._closed = False

    @classmethod
    def open(cls, path: str | os.PathLike[str], terms: AuditScope, *, remote: bool = False) -> Ledger:
        """Create or reopen a ledger; several processes and threads may have it open at once.

        Args:
            path: The file, usually RUN/ledger.sqlite.
            terms: Must equal those of an existing ledger, except for the authorisation: another one is added.
            remote: Whether the victim runs elsewhere; see the head of this file for what a kill means then.

        Raises:
            RunError: If the existing ledger is of another victim, budget or price, or cannot be used.
            ConfigError: If the victim is remote and no authorisation is given.
        """
        if remote and not (terms.authorised or "").strip():
            raise ConfigError(
                f"'{terms.victim}' runs elsewhere: state who authorised the audit and why, with --i-am-authorised."
            )
        place = Path(path)
        make_folder(place.parent)
        liveness = LivenessLock(place)
        try:
            connection = connect(place)
        except BaseException:
            liveness.end()
            raise
        ledger = cls(place, connection, liveness, terms, remote=remote)
        try:
            with ledger._transaction():
                for statement in _TABLES.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")
                ledger._write_terms()
                connection.execute("INSERT INTO openings VALUES (?, ?)", (liveness.token, now()))
                ledger._end_dead_openings()
        except BaseException:
            liveness.end()
            close_connection(connection)
            raise
        return ledger

    def reserve(self, queries: Sequence[PendingQuery]) -> list[Reservation | Query]:
        """Reserve one unit per query, in order and in one transaction; a shorter list means that the budget is spent.

        A query whose number is settled, or whose pixels were answered before (that costs nothing and is written as
        cached), gives its answer instead. A number that stands for other pixels, or is reserved by a living program, is
        a `RunError`.
        """
        found: list[Reservation | Query] = []
        with self._transaction() as connection:
            for query in queries:
                one = self._reserve(connection, query)
                if one is None:
                    break
                found.append(one)
        return found

    def _reserve(self, connection: sqlite3.Connection, query: PendingQuery) -> Reservation | Query | None:
        """One query of `reserve`; None when the budget is spent."""
        row = _row_of(connection, query.number)
        columns = (query.number, query.round, query.key, query.sha256, query.account)
        same_pixels = "SELECT * FROM queries WHERE sha256 = ? AND state = 'settled' ORDER BY number LIMIT 1"
        if row is None and (known := connection.execute(same_pixels, (query.sha256,)).fetchone()):
            connection.execute(
                "INSERT INTO queries (number, round, key, sha256, account, state, attempts, report, refused, tokens, "
                "cached, reserved_at, settled_at) VALUES (?, ?, ?, ?, ?, 'settled', 0, ?, ?, ?, 1, ?, ?)",
                (*columns, known["report"], known["refused"], known["tokens"], now(), now()),
            )
            return _query_of(_row_of(connection, query.number))
        if row is not None and row["sha256"] != query.sha256:
            raise RunError(
                f"Query {query.number} of {self.path} was made with the image '{row['key']}', not '{query.key}': an "
                "audit resumes with the same pool and seed."
            )
        if row is not None and row["state"] == "settled":
            return _query_of(row)
        if row is not None and row["state"] == "reserved":
            self._end_dead_openings()
            row = _row_of(connection, query.number)
            if row is not None and row["state"] == "reserved":
                raise RunError(
                    f"Query {query.number} of {self.path} is being answered for another program; wait until it ends."
                )
        further = 1 if row is None or self.remote else 0
        change = "UPDATE terms SET booked = booked + ? WHERE booked + ? <= budget"
        if connection.execute(change, (further, further)).rowcount == 0:
            return None
        connection.execute(
            "INSERT INTO queries (number, round, key, sha256, account, state, attempts, opening, reserved_at) "
            "VALUES (?, ?, ?, ?, ?, 'reserved', ?, ?, ?) ON CONFLICT (number) DO UPDATE SET state = 'reserved', "
            "attempts = attempts + excluded.attempts, opening = excluded.opening, reserved_at = excluded.reserved_at",
            (*columns, further, self._liveness.token, now()),
        )
        return Reservation(query)

    def settle(self, answered: Sequence[tuple[Reservation, Response]]) -> list[Query]:
        """Write answers, all of them or none; they are on the disk when this returns."""
        change = "state = 'settled', report = ?, refused = ?, tokens = ?, cost = ?, seconds = ?, settled_at = ?"
        settled = []
        with self._transaction() as connection:
            for ticket, answer in answered:
                cost = self.terms.price.of(answer.tokens)
                values = (answer.report, answer.refused, answer.tokens, cost, answer.seconds, now())
                settled.append(_query_of(self._end(connection, ticket, change, values)))
        return settled

    def release(self, tickets: Sequence[Reservation], reason: str) -> None:
        """Give units back: these calls failed before they reached the victim."""
        with self._transaction() as connection:
            for ticket in tickets:
                _write_failure(connection, ticket.query.number, reason, counted=False)
                self._end(connection, ticket, "state = 'open', attempts = attempts - 1")
                connection.execute("UPDATE terms SET booked = booked - 1")
            connection.execute("DELETE FROM queries WHERE state = 'open' AND attempts = 0")

    def abandon(self, tickets: Sequence[Reservation], reason: str) -> None:
        """Leave queries without an answer; sent again, each takes another unit of a remote victim."""
        with self._transaction() as connection:
            for ticket in tickets:
                _write_failure(connection, ticket.query.number, reason, counted=self.remote)
                self._end(connection, ticket, "state = 'open'")

    def queries(self) -> list[Query]:
        """Every settled query, by number."""
        with self._transaction("DEFERRED") as connection:
            return _settled_queries(connection)

    def statement(self) -> LedgerSummary:
        """The ledger in numbers."""
        with self._transaction("DEFERRED") as connection:
            return _summary_of(connection)

    @property
    def left(self) -> int:
        """Units that may still be reserved."""
        return self.statement().left

    def exceeded(self) -> BudgetExceeded:
        """The error of a budget that is spent."""
        return BudgetExceeded(
            f"The budget of {self.terms.budget:,} queries to '{self.terms.victim}' is spent; every answer so far is "
            f"in {self.path}. For a larger budget start another audit in another folder."
        )

    def close(self) -> None:
        """Close it; queries without an answer are left as a kill would leave them. Closing twice is allowed."""
        with self._lock:
            if self._closed:
                return
            try:
                with self._transaction():
                    self._end_opening(self._liveness.token, "the ledger was closed before the answer was written")
            finally:
                self._closed = True
                close_connection(self._connection)
                self._liveness.end()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write_terms(self) -> None:
        """Write the terms of a new ledger, or check that they are those of the existing one."""
        connection, terms, price = self._connection, self.terms, self.terms.price
        existing = _terms_of(connection)
        if existing is None:
            connection.execute(
                "INSERT INTO terms (victim, budget, remote, per_query, per_1k_tokens, currency, opened_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (terms.victim, terms.budget, self.remote, price.per_query, price.per_1k_tokens, price.currency, now()),
            )
        else:
            old = {**vars(existing[0]), "remote": existing[1]}
            new = {**vars(terms), "remote": self.remote}
            for name in ("victim", "budget", "price", "remote"):
                if old[name] != new[name]:
                    raise RunError(
                        f"{self.path} was made with {name}={old[name]}, not {name}={new[name]}; give the same, or "
                        "choose another folder."
                    )
        if terms.authorised and (existing is None or existing[0].authorised != terms.authorised):
            connection.execute("INSERT INTO authorisations VALUES (?, ?)", (terms.authorised, now()))

    def _end(
        self, connection: sqlite3.Connection, ticket: Reservation, change: str, values: tuple[object, ...] = ()
    ) -> sqlite3.Row:
        """End a reservation and return its row; a `RunError` if it has ended before."""
        number = ticket.query.number
        ours = "number = ? AND state = 'reserved' AND opening = ?"
        done = connection.execute(
            f"UPDATE queries SET {change}, opening = NULL WHERE {ours}", (*values, number, self._liveness.token)
        )
        row = _row_of(connection, number)
        if done.rowcount != 1 or row is None:
            raise RunError(f"Query {number} of {self.path} is not reserved here; its reservation has ended already.")
        return row

    def _end_opening(self, token: str, reason: str) -> None:
        """Everything that an opening had reserved is open again."""
        mine = "state = 'reserved' AND opening = ?"
        for (number,) in self._connection.execute(f"SELECT number FROM queries WHERE {mine}", (token,)).fetchall():
            _write_failure(self._connection, number, reason, counted=self.remote)
        self._connection.execute(f"UPDATE queries SET state = 'open', opening = NULL WHERE {mine}", (token,))
        self._connection.execute("DELETE FROM openings WHERE token = ?", (token,))

    def _end_dead_openings(self) -> None:
        """End the openings whose process was killed."""
        others = "SELECT token FROM openings WHERE token != ?"
        for (token,) in self._connection.execute(others, (self._liveness.token,)).fetchall():
            if not is_alive(self.path, token):
                self._end_opening(token, "the program ended before the answer was written")

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """All or nothing, one thread at a time; IMMEDIATE for writing."""
        with self._lock:
            if self._closed:
                raise RunError(f"The ledger {self.path} is closed; open it again.")
            with transaction(self._connection, self.path, kind):
                yield self._connection


def read_ledger(path: str | os.PathLike[str]) -> list[Query]:
    """Every settled query of a ledger, by number; read-only, also while an audit runs."""
    with reading(Path(path)) as connection:
        return _settled_queries(connection)


def read_summary(path: str | os.PathLike[str]) -> LedgerSummary:
    """A ledger in numbers; read-only. Queries of a killed program count as reserved."""
    with reading(Path(path)) as connection:
        return _summary_of(connection)


def _row_of(connection: sqlite3.Connection, number: int) -> sqlite3.Row | None:
    found: sqlite3.Row | None = connection.execute("SELECT * FROM queries WHERE number = ?", (number,)).fetchone()
    return found


def _query_of(row: sqlite3.Row | None) -> Query:
    """A settled row as a record."""
    assert row is not None
    values = {name: row[name] for name in Query.__dataclass_fields__}
    return Query(**{**values, "refused": bool(row["refused"]), "cached": bool(row["cached"])})


def _settled_queries(connection: sqlite3.Connection) -> list[Query]:
    rows = connection.execute("SELECT * FROM queries WHERE state = 'settled' ORDER BY number")
    return [_query_of(row) for row in rows]


def _terms_of(connection: sqlite3.Connection) -> tuple[AuditScope, bool] | None:
    """The terms, and whether the victim runs elsewhere; None for a ledger that is being made."""
    row = connection.execute("SELECT * FROM terms").fetchone()
    if row is None:
        return None
    price = Price(row["per_query"], row["per_1k_tokens"], row["currency"])
    last = _authorisation_of(connection)
    return AuditScope(row["victim"], row["budget"], last.text if last else None, price), bool(row["remote"])


def _authorisation_of(connection: sqlite3.Connection) -> Authorisation | None:
    """The last one given."""
    row = connection.execute("SELECT said, at FROM authorisations ORDER BY rowid DESC LIMIT 1").fetchone()
    return Authorisation(row["said"], row["at"]) if row else None


def _write_failure(connection: sqlite3.Connection, number: int, reason: str, *, counted: bool) -> None:
    """Write that an attempt brought no answer; `counted` if its unit stays spent."""
    connection.execute(
        "INSERT INTO failures SELECT number, attempts, ?, ?, ? FROM queries WHERE number = ?",
        (reason, counted, now(), number),
    )


def _summary_of(connection: sqlite3.Connection) -> LedgerSummary:
    """The ledger in numbers; call it inside a transaction, so that they belong together."""
    existing = _terms_of(connection)
    if existing is None:
        raise RunError("The ledger holds no terms: no audit has opened it.")
    terms, remote = existing
    booked = int(connection.execute("SELECT booked FROM terms").fetchone()[0])
    row = connection.execute(
        "SELECT COALESCE(SUM(state = 'settled' AND NOT cached), 0) AS answered, "
        "COALESCE(SUM(state = 'settled' AND NOT cached AND refused), 0) AS refused, "
        "COALESCE(SUM(cached), 0) AS cached, COALESCE(SUM(state = 'reserved'), 0) AS reserved, "
        "COALESCE(SUM(cost), 0.0) AS cost, "
        "COALESCE(SUM(state = 'settled' AND NOT cached AND tokens IS NULL), 0) AS unknown FROM queries"
    ).fetchone()
    lost = booked - row["answered"] - row["reserved"] if remote else 0
    # A lost attempt may have been billed: its fixed price is counted, the price of its tokens is unknown.
    amount = row["cost"] + lost * terms.price.per_query
    cost = Cost(amount, terms.price.currency, row["unknown"] + lost if terms.price.per_1k_tokens else 0)
    counts = (booked, row["answered"], row["refused"], row["cached"], lost)
    return LedgerSummary(terms, remote, _authorisation_of(connection), *counts, cost)


def now() -> str:
    """This moment, UTC, as ISO 8601 to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def connect(path: Path) -> sqlite3.Connection:
    """Open or create the database for several writers (WAL); every commit reaches the disk."""
    make_file(path)
    limit = time.monotonic() + LOCK_TIMEOUT_S
    try:
        connection = _connection(f"{path.resolve().as_uri()}?mode=rwc")
        while True:  # another program that is just opening or closing it locks it for a moment
            try:
                if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] == "wal":
                    break
                raise sqlite3.OperationalError("this file system cannot hold it, choose a folder on a local disk")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > limit:
                    raise
            time.sleep(0.01)
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
    """A read-only snapshot of the ledger at a path; a `DataError` if there is none."""
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
    """All or nothing; IMMEDIATE for writing, DEFERRED for reading."""
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


def close_connection(connection: sqlite3.Connection) -> None:
    """Close a connection; the last one merges the WAL back into the file."""
    with contextlib.suppress(sqlite3.Error):  # refused while another connection is open: that one merges it
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


def unusable(path: Path, error: sqlite3.Error) -> RunError | DataError:
    """The error for a ledger that SQLite cannot use."""
    reason = str(error).strip().rstrip(".") or type(error).__name__
    if isinstance(error, sqlite3.OperationalError):
        return RunError(f"cannot use the ledger {path}: {reason}.")
    return DataError(f"{path} is damaged or no ledger ({reason}); name the ledger.sqlite of a run, or another folder.")


class LivenessLock:
    """A locked file beside a ledger, which shows that one opening of it is alive."""

    def __init__(self, ledger: Path) -> None:
        self.token = secrets.token_hex(8)
        self._file = _liveness_file(ledger, self.token)
        try:
            self._handle = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE)
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise os_error(error, self._file, "lock") from error

    def end(self) -> None:
        """Remove the file; ending twice is allowed."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                self._file.unlink()
            os.close(self._handle)
            self._handle = -1


def is_alive(ledger: Path, token: str) -> bool:
    """Whether the opening with this token still runs; the file of a dead one is removed."""
    file = _liveness_file(ledger, token)
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


def _liveness_file(ledger: Path, token: str) -> Path:
    return ledger.parent / f".{ledger.name}.{token}.open"


def _connection(uri: str) -> sqlite3.Connection:
    # Transactions are begun by hand; threads take turns by a lock of the ledger.
    connection = sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    return connection
