"""Structuring through an endpoint: concurrent requests, the trial of the first reports, files for batch endpoints."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_server import Answer, ChatServer, completion, last_message_text, refusal
from corpora import content, toy_corpus
from scripted_model import answer

from cxrlab.cli.main import main
from cxrlab.core.errors import RunError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.llm_requests import ANSWERS, REQUESTS
from cxrlab.core.records import Report
from cxrlab.data.config import StructureConfig
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.structuring import by_model as results
from cxrlab.data.structuring.run import DOUBTS_KEY, structure_corpus
from cxrlab.evaluation.load_model import open_text_model
from cxrlab.models import batch_files

pytestmark = pytest.mark.slow  # starts servers

COUNT = 24  # studies; every third is of the test split
OPEN = [number for number in range(COUNT) if number % 3 != 2]
SPANISH, MARKED = 1, "Mark {} ."


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """Reports in English, one in Spanish; each names its number."""
    monkeypatch.delenv("CXRLAB_API_KEY", raising=False)
    monkeypatch.delenv("CXRLAB_ANSWERS", raising=False)
    changes: dict[int, dict[str, object]] = {
        number: {"sections": Report(findings=f"Unchanged left effusion. Mark {number} .")} for number in range(COUNT)
    }
    spanish = {"sections": None, "report": f"derrame pleural izquierd . Mark {SPANISH} .", "extra": {"language": "es"}}
    return toy_corpus(tmp_path / "source", COUNT, {**changes, SPANISH: spanish})


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(reply) as running:
        yield running


def number_of(prompt: str) -> int:
    return next(number for number in range(COUNT) if MARKED.format(number) in prompt)


def reply(body: dict[str, Any]) -> Answer:
    """A good answer; numbers 3 and 6 are wrong at first, 4 always; the content filter stops 7."""
    prompt = last_message_text(body)
    number = number_of(prompt)
    if number == 7:
        return 400, refusal("The prompt was filtered.", "content_filter")
    if number == 4 or (number in (3, 6) and "refused" not in prompt):
        return answer(findings="Cardiomegaly.")
    return answer(findings="Left pleural effusion.")


def structured(source: Corpus, out: Path, server: ChatServer, concurrency: int = 8, **settings: Any) -> Corpus:
    config = StructureConfig(model=server.address(), **{"max_refusals": 1.0, **settings})
    llm = config.llm.__class__(connection=config.llm.connection.__class__(concurrency=concurrency, tries=1))
    with open_text_model(config.model, llm, [source.egress_data], out) as model:
        return structure_corpus(source, config, out, model)


def made(folder: Path) -> dict[str, bytes]:
    """Every file but answers and requests, whose order may differ."""
    return {name: data for name, data in content(folder).items() if name not in (ANSWERS, REQUESTS)}


def paid(folder: Path) -> set[tuple[str, int]]:
    """Prompt and seed of every answer of a run."""
    return {(str(record["prompt"]), int(record["seed"])) for _, record in read_jsonl(folder / REQUESTS)}


def test_a_slow_answer_holds_up_no_other_request_and_the_order_remains(
    source: Corpus, server: ChatServer, tmp_path: Path
) -> None:
    """The first report is answered last of all: a barrier after any batch would never let the others through."""
    total = len(OPEN) + 6  # retries: one of 3 and 6, two of 4 and 7
    others = threading.Semaphore(0)

    def slow(body: dict[str, Any]) -> Answer:
        if number_of(last_message_text(body)) == 0:
            for _ in range(total - 1):
                assert others.acquire(timeout=20)
        else:
            others.release()
        return reply(body)

    one_by_one = structured(source, tmp_path / "one", server, concurrency=1)
    server.answer = slow
    before = len(server.requests)
    together = structured(source, tmp_path / "many", server, concurrency=4)
    assert made(tmp_path / "many") == made(tmp_path / "one")
    assert [study.id for study in together] == [study.id for study in one_by_one] == [f"s{k}" for k in range(COUNT)]
    assert len(server.requests) - before == before == total
    assert together["s0"].structured[server.address()] == {"findings": "Left pleural effusion."}
    assert list(together["s4"].structured) == list(together["s7"].structured) == ["rules"]


def test_a_failure_at_any_request_costs_no_answer_twice(source: Corpus, server: ChatServer, tmp_path: Path) -> None:
    structured(source, tmp_path / "whole", server)
    total = len(server.requests)
    for stop in (1, 5, 13, total):
        server.requests.clear()
        server.answer = lambda body, stop=stop: (500, refusal("gone")) if len(server.requests) >= stop else reply(body)
        with pytest.raises(RunError, match="gave no answer"):
            structured(source, tmp_path / f"stopped_{stop}", server, concurrency=3)
        answered = paid(tmp_path / f"stopped_{stop}") if stop > 1 else set()
        assert len(answered) == stop - 1
        server.answer = reply
        server.requests.clear()
        structured(source, tmp_path / f"stopped_{stop}", server, concurrency=3)
        assert not answered & {(last_message_text(request.body), request.body["seed"]) for request in server.requests}
        assert len(answered) + len(server.requests) == total
        assert made(tmp_path / f"stopped_{stop}") == made(tmp_path / "whole")


def test_the_first_reports_decide_whether_the_rest_is_sent(
    source: Corpus, server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the first 5 (0, 1, 3, 4, 6) three are refused at first. A limit of 0.5 stops, one of 0.6 goes on."""
    with pytest.raises(RunError, match=r"first 5 reports.* 3 \(60.0%\).*a finding appears 3.*--max-refusals 0.5 "):
        structured(source, tmp_path / "out", server, trial=5, max_refusals=0.5)
    assert {number_of(prompt) for prompt in server.prompts} == {0, 1, 3, 4, 6}
    assert "3 (60.0%) were refused" in capsys.readouterr().err
    sent = len(server.requests)
    with pytest.raises(RunError, match="--max-refusals 0.5 "):  # also when it goes on
        structured(source, tmp_path / "out", server, trial=5, max_refusals=0.5)
    structured(source, tmp_path / "out", server, trial=5, max_refusals=0.6)
    assert len(server.requests) - len(set(server.prompts)) == 2 and sent <= 5 + 4  # the filtered prompt has no reasons
    structured(source, tmp_path / "free", server)
    assert made(tmp_path / "out") == made(tmp_path / "free")


def test_flag_keeps_answers_and_records_the_doubts(source: Corpus, server: ChatServer, tmp_path: Path) -> None:
    """One request per report; an answer that holds no report is still requested again."""
    done = structured(source, tmp_path / "out", server, mode="flag", trial=4, max_refusals=0.0)
    assert Counter(map(number_of, server.prompts)) == Counter({number: 1 + 2 * (number == 7) for number in OPEN})
    study = done["s4"]
    assert study.structured == {server.address(): {"findings": "Cardiomegaly."}}
    doubts = study.extra[DOUBTS_KEY][server.address()]
    assert "a finding appears: cardiomegaly" in doubts and "a finding disappears: pleural effusion" in doubts
    assert DOUBTS_KEY not in done["s0"].extra and list(done["s7"].structured) == ["rules"]
    assert done.card.remarks[results.DOUBTED] == 3 == done.card.remarks["doubted: a finding appears"]
    assert done.card.settings["mode"] == "flag"


def in_batches(source: Corpus, out: Path, server: ChatServer, folder: Path, *flags: str) -> list[int]:
    """Structure by files: write requests, answer them in another order, read the answers; the requests per round."""
    command = ["data", "structure", str(source.path), "--model", server.address(), "--out", str(out), *flags]
    folder.mkdir()
    rounds: list[int] = []
    words: list[str] = []
    while not (out / "card.yaml").exists():
        file = folder / f"requests_{len(rounds)}.jsonl"
        assert main([*command, *words, "--write-requests", str(file)]) == 0
        if not file.exists():
            break
        lines = [line for _, line in read_jsonl(file)]
        rounds.append(len(lines))
        random.Random(len(rounds)).shuffle(lines)
        answers = folder / f"answers_{len(rounds)}.jsonl"
        answers.write_text("".join(json.dumps(batch_answer(line, len(rounds))) + "\n" for line in lines))
        words = ["--read-answers", str(answers)]
    return rounds


def batch_answer(line: dict[str, Any], number: int) -> dict[str, Any]:
    """A line of a batch endpoint; in the first round the request of report 0 expires."""
    assert line["method"] == "POST" and line["url"] == "/v1/chat/completions" and line["body"]["model"] == "m"
    given = reply(line["body"])
    status, body = given[:2] if isinstance(given, tuple) else (200, completion(str(given)))
    response: dict[str, Any] | None = {"status_code": status, "request_id": "r", "body": body}
    error = None
    if number == 1 and number_of(last_message_text(line["body"])) == 0:
        response, error = None, {"code": "batch_expired", "message": "This request could not be executed in time."}
    return {"id": "x", "custom_id": line["custom_id"], "response": response, "error": error}


def test_files_for_a_batch_endpoint_give_the_same_bytes_as_live_requests(
    source: Corpus, server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Round one has every report (16), round two those refused (3, 4, 6, 7) and the expired one, round three 4 and 7."""
    structured(source, tmp_path / "live", server)
    live = len(server.requests)
    rounds = in_batches(source, tmp_path / "out", server, tmp_path / "files", "--max-refusals", "1")
    assert rounds == [16, 5, 2] and len(server.requests) == live
    assert made(tmp_path / "out") == made(tmp_path / "live")
    assert paid(tmp_path / "out") == paid(tmp_path / "live")
    assert "batch_expired: 1" in capsys.readouterr().out
    spanish = load_corpus(tmp_path / "out")[f"s{SPANISH}"]
    assert spanish.structured[server.address()] == {"findings": "Left pleural effusion."}


def test_the_trial_comes_first_in_files_too(source: Corpus, server: ChatServer, tmp_path: Path) -> None:
    """Five of the trial, of which one expires; then that one with the retries of 3, 4 and 6; then the rest."""
    flags = ("--trial", "5", "--max-refusals", "0.6")
    assert in_batches(source, tmp_path / "out", server, tmp_path / "files", *flags)[:2] == [5, 4]
    structured(source, tmp_path / "live", server)
    assert made(tmp_path / "out") == made(tmp_path / "live")


def test_answers_of_another_run_and_existing_files_are_refused(
    source: Corpus, server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["data", "structure", str(source.path), "--model", server.address(), "--max-refusals", "1"]
    command += ["--out", str(tmp_path / "out")]
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text(json.dumps({"custom_id": "x", "response": {"status_code": 200, "body": completion("?")}}) + "\n")
    assert main([*command, "--read-answers", str(foreign)]) == 1
    assert "none of the 1 lines" in capsys.readouterr().err
    file = tmp_path / "requests.jsonl"
    assert main([*command, "--write-requests", str(file)]) == 0 and main([*command, "--write-requests", str(file)]) == 1
    answers = tmp_path / "answers.jsonl"
    lines = [batch_answer(line, 1) for _, line in read_jsonl(file)]
    answers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main([*command, "--read-answers", str(answers)]) == 1  # nothing is sent while some are open
    assert "5 requests have no answer yet" in capsys.readouterr().err and not server.requests
    assert main([*command, "--model", "scripted:x"]) == 1
    assert main([*command]) == 0 and len(server.requests) == 5 + 2  # the rest goes on live


def test_requests_for_another_machine_need_a_permission(source: Corpus, tmp_path: Path) -> None:
    """The address is of no machine (a range kept for documents), and nothing connects to it."""
    command = [
        "data",
        "structure",
        str(source.path),
        "--model",
        "https://192.0.2.1/v1#m",
        "--out",
        str(tmp_path / "out"),
    ]
    command += ["--write-requests", str(tmp_path / "requests.jsonl")]
    assert main(command) == 1 and not (tmp_path / "requests.jsonl").exists()
    assert main([*command, "--llm.connection.egress-permission", "Dr Grey, ethics vote 12"]) == 0
    assert len(list(read_jsonl(tmp_path / "requests.jsonl"))) == 16
    assert (tmp_path / "out" / "egress_permissions.jsonl").exists()


def test_a_setting_that_the_server_lacks_is_left_out_of_the_next_file(
    source: Corpus, server: ChatServer, tmp_path: Path
) -> None:
    command = ["data", "structure", str(source.path), "--model", server.address(), "--max-refusals", "1"]
    command += ["--limit", "1", "--out", str(tmp_path / "out")]
    first, second, answers = (tmp_path / name for name in ("first.jsonl", "second.jsonl", "answers.jsonl"))
    assert main([*command, "--write-requests", str(first)]) == 0
    ((_, line),) = read_jsonl(first)
    assert line["body"]["max_tokens"] == 1024
    objection = refusal("Unsupported parameter: 'max_tokens'; use 'max_completion_tokens'.", "unsupported_parameter")
    response = {"status_code": 400, "body": objection}
    answers.write_text(json.dumps({"custom_id": line["custom_id"], "response": response, "error": None}) + "\n")
    assert main([*command, "--read-answers", str(answers), "--write-requests", str(second)]) == 0
    ((_, again),) = read_jsonl(second)
    assert again["custom_id"] == line["custom_id"]
    assert again["body"]["max_completion_tokens"] == 1024 and "max_tokens" not in again["body"]


def test_a_file_of_requests_is_divided_at_the_limits_of_endpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_files, "MOST_LINES", 4)
    lines = [{"custom_id": str(number)} for number in range(9)]
    files = batch_files.write_batch(lines, tmp_path / "r.jsonl")
    assert [file.name for file in files] == ["r.jsonl", "r.2.jsonl", "r.3.jsonl"]
    assert [line for file in files for _, line in read_jsonl(file)] == lines
    monkeypatch.setattr(batch_files, "MOST_BYTES", 50)
    assert len(batch_files.write_batch(lines, tmp_path / "small.jsonl")) == 5
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")) == []
