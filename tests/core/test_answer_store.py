from __future__ import annotations

import sqlite3
import threading
import traceback
from pathlib import Path

import pytest

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.llm_requests import VERSION, AnswerStore, answer_key
from cxrlab.core.model_interfaces import Generated

FULL = Generated("words \u00fc", -0.5, 7, {"prompt_tokens": 3, "truncated": True})


def test_an_answer_comes_back_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "answers.sqlite"
    with AnswerStore(file) as store:
        assert store.get("k") is None and len(store) == 0
        store.add("k", "m", "p", FULL)
        store.add("l", "m", "p", Generated(""))
    with AnswerStore(file) as store:
        assert store.get("k") == FULL and store.get("l") == Generated("") and len(store) == 2
    store.close()


def test_an_answer_that_stands_there_is_never_replaced(tmp_path: Path) -> None:
    with AnswerStore(tmp_path / "a") as store:
        store.add("k", "m", "p", FULL)
        store.add("k", "m", "p", Generated("other"))
        assert store.get("k") == FULL and len(store) == 1


def test_half_a_character_can_be_kept(tmp_path: Path) -> None:
    with AnswerStore(tmp_path / "a") as store:
        store.add("k", "m", "\ud83d", Generated("x\ud83d"))
        assert store.get("k") == Generated("x?")


def test_the_key_states_apart_whatever_differs() -> None:
    keys = {
        answer_key("a", "b"),
        answer_key("ab"),
        answer_key("a", "", "b"),
        answer_key("b", "a"),
        answer_key('a", "b'),
        answer_key("\ud83d"),
    }
    assert len(keys) == 6 and answer_key("a", 1) == answer_key("a", "1")
    assert all(len(key) == 64 for key in keys)


def test_several_may_open_and_fill_one_new_file_at_once(tmp_path: Path) -> None:
    """Twelve threads with a connection of their own, as processes would have; none is refused, none is lost."""
    together, problems = threading.Barrier(12), []

    def work(number: int) -> None:
        together.wait(10)
        try:
            with AnswerStore(tmp_path / "shared") as store:
                for place in range(10):
                    store.add(f"{number}-{place}", "m", "p", FULL)
                    store.add(f"{place}", "m", "p", Generated(str(number)))
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    with AnswerStore(tmp_path / "shared") as store:
        assert len(store) == 120 + 10


def test_files_of_others_and_damaged_ones_are_reported(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be looked at " * 20)
    with pytest.raises(DataError, match="damaged or not an answer file"):
        AnswerStore(tmp_path / "text")
    foreign = sqlite3.connect(tmp_path / "foreign")
    foreign.execute("CREATE TABLE mine (a)")
    foreign.close()
    with pytest.raises(DataError, match="not an answer file of this program"):
        AnswerStore(tmp_path / "foreign")
    later = sqlite3.connect(tmp_path / "later")
    later.execute(f"PRAGMA user_version = {VERSION + 1}")
    later.close()
    with pytest.raises(DataError, match="not an answer file of this program"):
        AnswerStore(tmp_path / "later")
    with pytest.raises(RunError, match="cannot use the answer file"):
        AnswerStore(tmp_path)
    with sqlite3.connect(tmp_path / "foreign") as untouched:
        assert untouched.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]


def test_a_damaged_answer_is_reported_without_its_text(tmp_path: Path) -> None:
    for number, (column, value) in enumerate((("text", "CAST(x'5365637265741ff0ff' AS TEXT)"), ("extra", "'Secret'"))):
        with AnswerStore(tmp_path / f"{number}") as store:
            store.add("k", "m", "p", FULL)
        with sqlite3.connect(tmp_path / f"{number}") as damaged:
            damaged.execute(f"UPDATE answers SET {column} = {value}")
        with (
            AnswerStore(tmp_path / f"{number}") as store,
            pytest.raises(DataError, match=f"/{number} is dam") as caught,
        ):
            store.get("k")
        assert "Secret" not in "".join(traceback.format_exception(caught.value))


def test_without_a_file_answers_stay_in_memory() -> None:
    with AnswerStore(None) as store:
        store.add("k", "m", "p", FULL)
        assert store.get("k") == FULL
