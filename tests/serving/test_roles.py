"""Judge, oracle and structurer asked of a true server on this machine, which is killed half-way, as is who asks."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import content, toy_corpus
from prediction_runs import effusions
from restartable_server import RestartableServer, started, wait_for
from scripted_model import answer as sections
from simulated_judges import answer as counts
from training_fixtures import saved_llava

from cxrlab.cli.main import main
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.llm_requests import ANSWERS, REQUESTS
from cxrlab.core.records import Report
from cxrlab.data.corpus import load_corpus
from cxrlab.data.structuring import by_model as records
from cxrlab.extraction.llm_oracle import load_questions
from cxrlab.extraction.report_content import Category
from cxrlab.extraction.rule_oracles import KINDS, load_descriptions
from cxrlab.preference.reward_files import REWARDS, read_rewards

pytestmark = pytest.mark.slow

# Reports by what is wrong with them: as many significant errors as their place says.
ROCKS = ("quartz", "basalt", "gypsum", "pumice", "marble", "gneiss")
ASKED_FOR = 2  # descriptions that each question to the oracle asks for


@dataclass(frozen=True)
class Role:
    """A command that asks a language model.

    Args:
        words: The command without what is asked and where it writes.
        model: Flag, and what stands there for the model's name.
        say: What the model answers.
        prompts: How many it is asked.
        kills: After how many answers the server is killed, and after how many more whoever asks.
        asking: Prefix of the flags of asking.
        folder: Where in the run its requests and answers are.
        results: Files of the run that hold what came of the answers; all but requests and answers when left out.
    """

    words: tuple[str, ...]
    model: tuple[str, str]
    say: Callable[[str], str]
    prompts: int
    kills: tuple[int, int]
    asking: str = "--llm"
    folder: str = "."
    results: tuple[str, ...] = ()

    def command(self, name: str, out: Path, *more: str) -> list[str]:
        """The words of the whole command; a server that hangs up is asked no second time."""
        flag, model = self.model
        settings = [f"{self.asking}.connection.tries", "1", f"{self.asking}.connection.concurrency", "3"]
        return [*self.words, flag, model.replace("MODEL", name), "--out", str(out), *settings, *more]

    def requests(self, run: Path) -> list[dict[str, Any]]:
        """The requests of a run."""
        return [record for _, record in read_jsonl(run / self.folder / REQUESTS)]

    def noted(self, run: Path) -> int:
        """How many there are while it runs; one that is just being written has no end yet."""
        file = run / self.folder / REQUESTS
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def made(self, run: Path) -> dict[str, bytes]:
        """What came of the answers, byte for byte."""
        found = {name: data for name, data in content(run).items() if Path(name).name not in (ANSWERS, REQUESTS)}
        return {name: found[name] for name in self.results or found}

    def exchange(self, run: Path) -> tuple[dict[str, dict[str, Any]], list[Any]]:
        """Every request by its key, and every answer that is kept; the order in which they came is chance."""
        requests = self.requests(run)
        found = {record["id"]: record for record in requests}
        assert len(found) == len(requests), "a request stands there twice"
        with closing(sqlite3.connect(run / self.folder / ANSWERS)) as file:
            return found, file.execute("SELECT * FROM answers ORDER BY key").fetchall()


def mark(prompt: str) -> str:
    """The line with which a judge is to begin."""
    return re.findall(r"ANSWER [0-9a-f]{12}", prompt)[-1]


def report(rock: str) -> str:
    return f"There is {rock} in the left lung."


def rocks_in(prompt: str) -> list[str]:
    """The reports in a prompt, in the order in which they are shown."""
    places = {prompt.index(report(rock)): rock for rock in ROCKS if report(rock) in prompt}
    return [places[place] for place in sorted(places)]


def counted(prompt: str) -> str:
    """Two judges by one model: significant errors and another one; or, for GREEN, two matched findings beside them."""
    errors = ROCKS.index(rocks_in(prompt)[0])
    if "[Matched Findings]" not in prompt:
        return f"{mark(prompt)}\n{counts(np.array([errors, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]))}"
    lists = [
        "\n".join(f"({letter}) kind: {number if letter == 'a' else 0}." for letter in "abcdef")
        for number in (errors, 1)
    ]
    said = f"[Clinically Significant Errors]:\n{lists[0]}\n\n[Clinically Insignificant Errors]:\n{lists[1]}\n\n"
    return f"{mark(prompt)}\n{said}[Matched Findings]:\n2. the lung; the side"


def compared(prompt: str) -> str:
    """The report with fewer errors is better, whichever comes first."""
    first, second = map(ROCKS.index, rocks_in(prompt))
    return f"{mark(prompt)}\nBETTER: {'FIRST' if first < second else 'SECOND'}"


SAID = load_descriptions("rules")
QUESTIONS = {question.prompt: question for question in load_questions().fill_in(ASKED_FOR)}


def described(prompt: str) -> str:
    """What the rules say of a part, each wording of the question getting other lines."""
    question = QUESTIONS[prompt]
    rows = SAID.of(question.category, question.kind)
    lines = [rows[(ASKED_FOR * (question.wording - 1) + place) % len(rows)] for place in range(ASKED_FOR)]
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def structured(prompt: str) -> str:
    """The report without its comparison; of one study at first something that its source does not say."""
    (number,) = re.findall(r"Mark (\d+)", prompt)
    wrong = number == "4" and "refused" not in prompt
    return sections(findings="Cardiomegaly." if wrong else f"Left effusion. Mark {number}.", indication="Cough.")


@dataclass
class World:
    """A server, the roles that ask it, and runs of theirs that nobody disturbed."""

    folder: Path
    server: RestartableServer
    roles: dict[str, Role]
    _whole: dict[str, Path] = field(default_factory=dict)

    def whole(self, name: str) -> Path:
        """The run of a role from its beginning to its end in one go, each prompt asked once; made when first wanted."""
        if name not in self._whole:
            role, out = self.roles[name], self.folder / "whole" / name
            asked, answered = len(self.server.prompts), self.server.answered
            self.ask(role)
            assert main(role.command(self.server.name, out)) == 0
            wait_for(lambda: self.server.answered - answered == role.prompts)
            assert len(self.server.prompts) - asked == role.prompts == len(set(self.server.prompts[asked:]))
            self._whole[name] = out
        return self._whole[name]

    def ask(self, role: Role) -> None:
        """Have the server listen, and its model speak in this role."""
        self.server.say = role.say
        self.server.start()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    here = tmp_path_factory.mktemp("roles")
    (here / "references.json").write_text(json.dumps(dict.fromkeys(ROCKS, "The lungs are clear.")))
    (here / "predictions.json").write_text(json.dumps({rock: report(rock) for rock in ROCKS}))
    candidates = [
        {"id": f"s{study}", "report": report(rocks[0]), "answers": [{"report": report(rock)} for rock in rocks]}
        for study, rocks in enumerate((ROCKS[:3], ROCKS[5:2:-1]))
    ]
    (here / "candidates.jsonl").write_text("".join(json.dumps(line) + "\n" for line in candidates))
    results = {
        k: {"sections": Report(indication=f"{k + 40} yo man, cough.", findings=f"Unchanged left effusion. Mark {k}.")}
        for k in range(12)
    }
    corpus = toy_corpus(here / "corpus", 12, results).path
    roles = {
        "judge": Role(
            ("score", "--references", f"{here}/references.json", "--predictions", f"{here}/predictions.json",
             "--trials", "20"),
            ("--metrics", "rougeL:google,chexprompt:MODEL,green:MODEL"),
            counted, prompts=12, kills=(4, 4),
            results=("scores.json", "per_study.jsonl", "tallies.json", "tallies.npz"),
        ),
        "pairwise": Role(
            ("prefer", "judge", "--candidates", f"{here}/candidates.jsonl", "--data", str(corpus)),
            ("--judge", "pairwise:MODEL"),
            compared, prompts=12, kills=(5, 3), results=(REWARDS, "summary.json"),
        ),
        "structurer": Role(
            ("data", "structure", str(corpus), "--batch", "2"), ("--model", "MODEL"),
            structured, prompts=9, kills=(3, 3),
        ),
        "oracle": Role(
            ("extract", "--victim", "stub:normal", "--data", str(effusions(here / "images", 2, normal=(1,))),
             "--surrogate", f"hf:{saved_llava(here / 'llava')}", "--pool", "noise", "--budget", "2", "--rounds", "2",
             "--size", "16", "--map-sentences", "0", "--consulting.count", str(ASKED_FOR), "--fitting.steps", "1",
             "--fitting.lora-rank", "0", "--fitting.max-length", "400", "--measure.metrics", "rougeL:coco",
             "--measure.swaps", "10", "--surrogate-decoding.strategy", "greedy",
             "--surrogate-decoding.max-new-tokens", "4"),
            ("--oracle", "MODEL"),
            described, prompts=len(QUESTIONS), kills=(10, 8), asking="--oracle-llm", folder="oracle",
            results=("oracle.json", "rounds/1/plan.jsonl", "extraction.json"),
        ),
    }  # fmt: skip
    with RestartableServer(here) as server:
        yield World(here, server, roles)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answers of another run, no key, and no progress on the streams."""
    for variable in ("CXRLAB_ANSWERS", "CXRLAB_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CXRLAB_QUIET", "1")


def test_judges_count_what_the_model_says(world: World) -> None:
    """0 to 5 significant errors are 2.5 a report, and one more each that is not; 2 matched of 2 + k findings."""
    found = read_json(world.whole("judge") / "scores.json")
    values = {name: results["value"] for name, results in found["metrics"].items()}
    model = world.server.name
    assert (values[f"chexprompt:{model}"], values[f"chexprompt.significant:{model}"]) == (3.5, 2.5)
    assert values[f"green:{model}"] == pytest.approx(sum(2 / (2 + errors) for errors in range(6)) / 6)
    assert {results["parsed"] for results in found["judges"].values()} == {6}


def test_a_judge_of_two_reports_gives_rewards(world: World) -> None:
    """Of three reports the best wins twice and the worst loses twice; the second study has them the other way round."""
    found = {study.id: study.rewards for study in read_rewards(world.whole("pairwise") / REWARDS)}
    assert found == {"s0": [2.0, 0.0, -2.0], "s1": [-2.0, 0.0, 2.0]}


def test_an_oracle_says_what_pictures_are_moved_towards(world: World) -> None:
    """Every line of the rules is read again as what it was asked for, and the plan of the second round is made of
    them."""
    run = world.whole("oracle")
    results = read_json(run / "oracle.json")
    assert (results["answers"], results["paid"]) == ({"parsed": 25, "partial": 0, "failed": 0}, 25)
    kept = {text for kind in KINDS for part in Category for text in results["descriptions"][kind][part.value]}
    assert kept <= set(SAID.texts()) and all(results["kept"][kind][part.value] for kind in KINDS for part in Category)
    (plan,) = [row for _, row in read_jsonl(run / "rounds" / "1" / "plan.jsonl")]
    spoken = {text for source, text in plan["target"]["parts"].values() if source in KINDS}
    assert spoken and spoken <= kept


def test_a_structurers_text_is_checked_and_accepted(world: World) -> None:
    """Eight studies of which one was asked about twice; the four of the test split pass."""
    done = load_corpus(world.whole("structurer"))
    expected = {records.BY_MODEL: 7, records.BY_MODEL_AGAIN: 1, records.TEST: 4}
    assert {remark: done.card.remarks.get(remark) for remark in expected} == expected
    assert done["s4"].structured == {world.server.name: {"indication": "Cough.", "findings": "Left effusion. Mark 4."}}


ROLES = ("judge", "pairwise", "structurer", "oracle")


@pytest.mark.full
@pytest.mark.parametrize("name", ROLES)
def test_server_and_client_are_killed_and_nothing_is_queried_twice(
    world: World, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each while the model writes; what had been answered by then is never sent again, and the files are the same."""
    role, server, out = world.roles[name], world.server, world.folder / "killed" / name
    whole, command = world.whole(name), role.command(server.name, out)
    begun, answered = len(server.prompts), server.answered
    world.ask(role)
    capsys.readouterr()

    def when_kept(count: int, kill: Callable[[], None]) -> Callable[[], None]:
        """Kill once so many answers are on file, and logged: the last may still be on its way."""

        def act() -> None:
            wait_for(lambda: role.noted(out) == count == server.answered - answered)
            kill()

        return act

    def kill_client() -> None:
        client.kill()
        wait_for(lambda: server.alone)  # else what waits there might be asked for nobody

    first, more = role.kills
    server.interrupt(first, when_kept(first, server.kill))
    assert main(command) == 1
    results = capsys.readouterr().err
    assert results.count("\n") == 1 and "repeat the command" in results and server.name in results
    kept, after = [{record["prompt"] for record in role.requests(out)}], [len(server.prompts)]

    server.start()
    gone = server.interrupt(more, when_kept(first + more, kill_client))
    with (world.folder / f"{name}.txt").open("w") as errors:
        client = started(*command, stderr=errors)
    assert client.wait(60) == -signal.SIGKILL, Path(errors.name).read_text()
    assert gone.wait(60)
    kept.append({record["prompt"] for record in role.requests(out)})
    after.append(len(server.prompts))
    # As if the kill had come a moment earlier: the answer is kept, and its line is torn.
    lines = out / role.folder / REQUESTS
    lines.write_bytes(lines.read_bytes()[:-9])

    assert main(command) == 0
    wait_for(lambda: server.answered - answered == role.prompts)
    assert list(map(len, kept)) == [first, first + more]
    assert not any(known & set(server.prompts[place:]) for known, place in zip(kept, after, strict=True))
    assert len(server.prompts) - begun == role.prompts + 2, "each kill met one prompt that the model was writing at"
    assert role.exchange(out) == role.exchange(whole)
    assert role.made(out) == role.made(whole)


@pytest.mark.parametrize("name", ROLES)
def test_with_the_answers_at_hand_nobody_needs_to_be_there(world: World, name: str) -> None:
    """The same command in another folder while the server is dead; all that differs is that nothing was paid for."""
    role, out, whole = world.roles[name], world.folder / "offline" / name, world.whole(name)
    world.server.kill()
    cache = f"{role.asking}.cache={whole / role.folder / ANSWERS}"
    assert main(role.command(world.server.name, out, cache)) == 0
    assert [record["paid"] for record in role.requests(out)] == [False] * role.prompts
    assert not (out / role.folder / ANSWERS).exists()
    free = {name: re.sub(rb'"(paid|found)": \d+', b"", data) for name, data in role.made(out).items()}
    assert free == {name: re.sub(rb'"(paid|found)": \d+', b"", data) for name, data in role.made(whole).items()}
