"""Who may ask, how often, and how much; keys are kept nowhere."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cxrlab.cli.main import main
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.serving.accounts import (
    Account,
    Accounts,
    QuotaStore,
    Rates,
    Reservation,
    add_account,
    anonymous_account,
    hash_of,
    read_accounts,
)
from cxrlab.serving.config import Allowance
from cxrlab.serving.errors import ApiError


def two(tmp_path: Path) -> tuple[Accounts, dict[str, str]]:
    file = tmp_path / "keys.yaml"
    keys = {name: add_account(file, name) for name in ("clinic-a", "clinic-b")}
    return Accounts(read_accounts(file, Allowance()), anonymous_account(Allowance())), keys


def test_a_key_is_printed_once_and_its_hash_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys.yaml"
    assert main(["serve", "key", "clinic-a", "--keys", str(file), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["account"] == "clinic-a" and len(made["key"]) > 40
    assert made["key"] not in file.read_text() and hash_of(made["key"]) in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert main(["serve", "key", "clinic-a", "--keys", str(file)]) == 1
    assert "already" in capsys.readouterr().err
    assert main(["serve", "key", "a b", "--keys", str(file)]) == 1
    assert main(["serve", "key", "anonymous", "--keys", str(file)]) == 1


ADDING = """
import sys, time
from pathlib import Path
from cxrlab.serving.accounts import add_account
file, start, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
print("ready", flush=True)
while not start.exists():
    time.sleep(0.001)
for number in range(4):
    add_account(file, f"{name}-{number}")
"""


def test_accounts_that_are_made_at_the_same_moment_are_all_kept(tmp_path: Path) -> None:
    file, start = tmp_path / "keys.yaml", tmp_path / "start"
    add_account(file, "first")
    call = [sys.executable, "-c", ADDING, str(file), str(start)]
    processes = [subprocess.Popen([*call, f"p{one}"], stdout=subprocess.PIPE) for one in range(6)]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    start.touch()
    assert [process.wait() for process in processes] == [0] * 6
    wanted = {"first", *(f"p{one}-{number}" for one in range(6) for number in range(4))}
    assert {account.name for account in read_accounts(file, Allowance())} == wanted
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["keys.yaml", "start"]


KILLED = """
import os, sys
from pathlib import Path
from cxrlab.serving.accounts import add_account
replace = os.replace
def kill(*names):
    if sys.argv[2] == "after":
        replace(*names)
    os.kill(os.getpid(), 9)
os.replace = kill
add_account(Path(sys.argv[1]), "second")
"""


@pytest.mark.parametrize(("moment", "kept"), [("before", {"first"}), ("after", {"first", "second"})])
def test_a_kill_leaves_the_old_or_the_new_file_and_no_lock(tmp_path: Path, moment: str, kept: set[str]) -> None:
    file = tmp_path / "keys.yaml"
    add_account(file, "first")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(file), moment], check=False)
    assert killed.returncode == -9
    assert {account.name for account in read_accounts(file, Allowance())} == kept
    add_account(file, "third")
    assert {account.name for account in read_accounts(file, Allowance())} == {*kept, "third"}


def test_permissions_of_a_file_of_keys_stay(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    add_account(file, "first")
    file.chmod(0o640)
    add_account(file, "second")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_key_tells_its_account_by_either_header(tmp_path: Path) -> None:
    accounts, keys = two(tmp_path)
    assert accounts.identify({"authorization": f"Bearer {keys['clinic-b']}"}).name == "clinic-b"
    assert accounts.identify({"authorization": f"bearer  {keys['clinic-a']} "}).name == "clinic-a"
    assert accounts.identify({"api-key": keys["clinic-a"]}).name == "clinic-a"


WITHOUT_A_KEY = (
    {},
    *({"authorization": header} for header in ("Bearer ", "Bearer wrong", "Basic x", "Bearer \udcff")),
    {"api-key": ""},
)


@pytest.mark.parametrize("headers", WITHOUT_A_KEY)
def test_no_key_or_a_wrong_one_is_401(tmp_path: Path, headers: dict[str, str]) -> None:
    accounts, _ = two(tmp_path)
    with pytest.raises(ApiError) as caught:
        accounts.identify(headers)
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert caught.value.headers["WWW-Authenticate"] == "Bearer" and "wrong" not in caught.value.message


def test_the_hash_itself_is_no_key(tmp_path: Path) -> None:
    accounts, keys = two(tmp_path)
    with pytest.raises(ApiError):
        accounts.identify({"authorization": f"Bearer {hash_of(keys['clinic-a'])}"})


def test_without_keys_everybody_is_anybody() -> None:
    accounts = Accounts([], anonymous_account(Allowance(answers_per_day=5)))
    assert accounts.open
    found = accounts.identify({"authorization": "Bearer whatever"})
    assert found.name == "anonymous" and found.answers_per_day == 5


def test_accounts_have_their_own_limits_or_the_servers(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(
        "accounts:\n"
        f"  one:\n    key_sha256: '{'0' * 64}'\n    answers_per_day: 3\n    requests_per_minute: null\n"
        f"  two:\n    key_sha256: '{'1' * 64}'\n"
    )
    one, two = read_accounts(file, Allowance(requests_per_minute=60, answers_per_day=9))
    assert (one.answers_per_day, one.requests_per_minute) == (3, None)
    assert (two.answers_per_day, two.requests_per_minute) == (9, 60)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no account"),
        ("accounts: [a]", "group of accounts"),
        ("users: {}", "unknown key"),
        ("accounts:\n  a: {key: x}", "unknown key 'key'"),
        ("accounts:\n  a: {key_sha256: abc}", "64 hexadecimal"),
        (f"accounts:\n  a: {{key_sha256: '{'0' * 64}', answers_per_day: -1}}", "above 0"),
        (f"accounts:\n  a: {{key_sha256: '{'0' * 64}', answers_per_day: 1.5}}", "above 0"),
        (f"accounts:\n  a: {{key_sha256: '{'0' * 64}'}}\n  b: {{key_sha256: '{'0' * 64}'}}", "same key"),
        ("accounts:\n  a:", "not an account"),
    ],
)
def test_a_wrong_file_of_keys_is_said(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "keys.yaml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_accounts(tmp_path / "keys.yaml", Allowance())


def test_a_bucket_lets_in_a_minutes_worth_at_once_and_then_one_after_the_other() -> None:
    """Six a minute: six at once, the seventh after ten seconds."""
    now = [100.0]
    rates, account = Rates(lambda: now[0]), Account("a", requests_per_minute=6)
    for _ in range(6):
        rates.take(account)
    with pytest.raises(ApiError) as caught:
        rates.take(account)
    assert (caught.value.status, caught.value.code) == (429, "rate_limited")
    assert 10 <= int(caught.value.headers["Retry-After"]) <= 11
    now[0] += 9.9
    with pytest.raises(ApiError):
        rates.take(account)
    rates.take(Account("b", requests_per_minute=6))  # another account has a bucket of its own
    now[0] += 0.2
    rates.take(account)
    now[0] += 1e6
    for _ in range(6):
        rates.take(account)
    with pytest.raises(ApiError):
        rates.take(account)


def test_a_rate_below_one_a_minute_lets_one_in() -> None:
    now = [0.0]
    rates, account = Rates(lambda: now[0]), Account("a", requests_per_minute=0.5)
    rates.take(account)
    with pytest.raises(ApiError) as caught:
        rates.take(account)
    assert 120 <= int(caught.value.headers["Retry-After"]) <= 121


def test_books_survive_and_count_days_and_totals(tmp_path: Path) -> None:
    day = ["2026-01-01"]
    account = Account("a", answers_per_day=3, answers_total=5)
    books = QuotaStore(tmp_path / "quotas.sqlite", lambda: day[0])
    books.reserve(Reservation(account, 2))
    failed = Reservation(account, 1)
    books.reserve(failed)
    with pytest.raises(ApiError) as caught:
        books.reserve(Reservation(account, 1))
    assert (caught.value.status, caught.value.code) == (429, "quota_exhausted") and "3 of its 3" in caught.value.message
    books.give_back(failed)
    books.give_back(failed)  # once is enough
    assert books.used("a") == (2, 2)
    books.close()
    books = QuotaStore(tmp_path / "quotas.sqlite", lambda: day[0])
    assert books.used("a") == (2, 2)
    with pytest.raises(ApiError):
        books.reserve(Reservation(account, 2))
    day[0] = "2026-01-02"
    books.reserve(Reservation(account, 3))
    assert books.used("a") == (3, 5)
    day[0] = "2026-01-03"
    with pytest.raises(ApiError, match="quota_exhausted") as caught:
        books.reserve(Reservation(account, 1))
    assert "in total" in caught.value.message
    books.reserve(Reservation(Account("b"), 100))
    assert books.used("b") == (100, 100)
    books.close()
    assert [file.name for file in tmp_path.iterdir()] == ["quotas.sqlite"]


def test_a_reservation_that_was_refused_gives_nothing_back(tmp_path: Path) -> None:
    books, account = QuotaStore(tmp_path / "quotas.sqlite"), Account("a", answers_total=1)
    books.reserve(Reservation(account, 1))
    refused = Reservation(account, 1)
    with pytest.raises(ApiError):
        books.reserve(refused)
    books.give_back(refused)
    assert books.used("a") == (1, 1)
    books.close()


def test_what_are_no_books_is_said(tmp_path: Path) -> None:
    (tmp_path / "quotas.sqlite").write_text("no database, but long enough to be looked at as one by a reader")
    with pytest.raises(RunError, match="--out"):
        QuotaStore(tmp_path / "quotas.sqlite")
    import sqlite3

    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("PRAGMA user_version = 7")
    with pytest.raises(DataError, match="version 7"):
        QuotaStore(tmp_path / "other.sqlite")
