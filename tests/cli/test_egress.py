"""Patients' data stay on this machine unless somebody said that they may go: every command that shows a corpus."""

from __future__ import annotations

import ast
import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from corpora import toy_corpus

import cxrlab
from cxrlab.cli.main import main
from cxrlab.core.egress import Connection, EgressData, all_synthetic, check_egress, is_loopback
from cxrlab.core.errors import ConfigError, RunError
from cxrlab.core.llm_requests import LLMConfig
from cxrlab.data.compose import compose_corpus, plan
from cxrlab.data.config import ComposeConfig, PhantomConfig, ScenesConfig, StructureConfig
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.data.structuring.run import structure_corpus
from cxrlab.data.synthetic_scenes import make_scenes
from cxrlab.evaluation.load_model import open_model, open_text_model
from cxrlab.models import model_registry
from cxrlab.models.http_client import ChatClient
from cxrlab.models.http_models import HttpReportModel, HttpTextModel
from cxrlab.models.llm_cache import CachedTextModel

pytestmark = pytest.mark.slow

AWAY = "https://elsewhere.example/v1#model"
PLAIN = "http://elsewhere.example/v1#model"
SENTENCE = "is not on this machine"
PERMISSION = "Ethics board, for this test"
MAY_TEST = ("--i-am-authorised", "J. Doe, the owner")
REACHED = "the gate let it pass"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A phantom corpus, the same with a card that no longer says so, a folder of its images, and files of studies."""
    here = tmp_path_factory.mktemp("egress")
    make_phantom(PhantomConfig(n=24, size=32, seed=3, workers=1), here / "drawn")
    shutil.copytree(here / "drawn", here / "patients")
    card = yaml.safe_load((here / "patients" / "card.yaml").read_text())
    assert card.pop("synthetic") is True
    (here / "patients" / "card.yaml").write_text(yaml.safe_dump(card))
    study = {"study": "analysis1", "references": str(here / "patients"), "processed": AWAY}
    (here / "analysis.yaml").write_text(yaml.safe_dump(study))
    leave = {"structure": {"llm": {"connection": {"egress_permission": PERMISSION}}}}
    (here / "analysis_allowed.yaml").write_text(yaml.safe_dump({**study, **leave}))
    return {name: here / name for name in ("drawn", "patients", "analysis.yaml", "analysis_allowed.yaml")}


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was tried to reach anybody: a look-up, a connection, or a request that was ready to go."""
    tried: list[str] = []

    def stopped(what: str) -> Callable[..., Any]:
        def stop(*given: Any, **named: Any) -> Any:
            tried.append(what)
            raise RunError(REACHED)

        return stop

    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, stopped(name))
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, stopped(name))
    monkeypatch.setattr(ChatClient, "_try", stopped("ask"))  # behind the client's own check
    return tried


# Words of each command; `{model}` is the address, `{patients}` a corpus of patients, `{drawn}` one of nobody.
IMAGES = {
    "generate": "generate --model {model} --data {patients}",
    "prefer sample": "prefer sample --model {model} --data {patients}",
    "robustness": "robustness --model {model} --data {patients} --attacks noise",
    "robustness, held against": "robustness --model stub:normal --versus {model} --data {patients} --attacks noise",
    "robustness, smoothed": "robustness --model smoothed:0.1:{model} --data {patients} --attacks noise",
    "extract, measured on": "extract --victim {model} --data {patients} --method knockoff --budget 4",
    "extract, asked with": "extract --victim {model} --data {drawn} --method knockoff --budget 4 "
    "--pool corpus:{patients}",
    "extract, a share of it": "extract --victim {model} --data {drawn} --method knockoff --budget 4 "
    "--pool mix:0.5:corpus:{patients}+scenes",
    "extract, a folder": "extract --victim {model} --data {drawn} --method knockoff --budget 4 "
    "--pool folder:{patients}/images",
    "defend": "defend --victim {model} --data {patients} --defences quota --budget 4",
    "defend, asked with": "defend --victim {model} --data {drawn} --defences quota --budget 4 --pool corpus:{patients}",
    "explain": "explain --model {model} --data {patients} --study {study}",
    "explain, a file": "explain --model {model} --image {image}",
    "pointing": "pointing --model {model} --data {patients}",
}
TEXTS = {
    "data structure": "data structure {patients} --model {model}",
    "study": "study {analysis}",
}
# Where weights are needed, an address is refused whatever the corpus is.
WEIGHTS = {
    "retrieve": "retrieve --model {model} --data {patients}",
    "harden": "harden --model {model} --data {patients}",
    "detect": "detect {patients} --benign {patients} --encoder {model}",
    "train align": "train align --start {model} --data {patients}",
    "train finetune": "train finetune --start {model} --data {patients}",
    "train encoder": "train encoder --start {model} --data {patients}",
}

NO_WEIGHTS = ("cannot be a start", "has no vision encoder", "does not name a dual encoder", "(in")


def run(words: str, folders: dict[str, Path], out: Path, model: str = AWAY, *more: str) -> int:
    study = load_corpus(folders["patients"]).ids("test")[0]
    image = next((folders["patients"] / "images").iterdir())
    places = {**folders, "analysis": folders["analysis.yaml"], "model": "{model}", "study": study, "image": image}
    filled = [word.format(**places).replace("{model}", model) for word in words.split()]
    authorised = MAY_TEST if filled[0] in ("robustness", "extract", "defend") else ()
    return main([*filled, *authorised, *more, "--out", str(out)])


@pytest.mark.parametrize("words", [*IMAGES.values(), *TEXTS.values()], ids=[*IMAGES, *TEXTS])
def test_without_leave_nothing_is_sent_and_nothing_is_left_behind(
    words: str, folders: dict[str, Path], wire: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words, folders, tmp_path / "out") == 1
    said = capsys.readouterr().err
    assert SENTENCE in said and "nothing was sent" in said and "egress-permission" in said and "Traceback" not in said
    assert wire == [] and not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", WEIGHTS.values(), ids=WEIGHTS)
def test_commands_that_need_weights_take_no_address(
    words: str, folders: dict[str, Path], wire: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words, folders, tmp_path / "out") == 1
    said = capsys.readouterr().err
    assert any(f"'{AWAY}' {why}" in said or f"{why} '{AWAY}'" in said for why in NO_WEIGHTS) and wire == []


@pytest.mark.parametrize(
    "name", [name for name in IMAGES if name.startswith(("generate", "robustness", "extract", "def"))]
)
def test_with_leave_the_gate_lets_pass_and_the_run_keeps_who_gave_it(
    name: str, folders: dict[str, Path], wire: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(IMAGES[name], folders, tmp_path / "out", AWAY, "--loading.connection.egress-permission", PERMISSION) == 1
    said = capsys.readouterr().err
    assert SENTENCE not in said
    if "smoothed" in name:
        assert "cannot be smoothed" in said and wire == []
        return
    assert REACHED in said and set(wire) == {"ask"}
    settings = yaml.safe_load((tmp_path / "out" / "config.yaml").read_text())
    assert settings["loading"]["connection"]["egress_permission"] == PERMISSION


def test_with_leave_reports_pass_too_and_the_corpus_keeps_who_gave_it(
    folders: dict[str, Path], wire: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = ("--llm.connection.egress-permission", PERMISSION)
    assert run(TEXTS["data structure"], folders, tmp_path / "out", AWAY, *flag) == 1
    assert REACHED in capsys.readouterr().err and set(wire) == {"ask"}
    assert PERMISSION in (tmp_path / "out" / "egress_permissions.jsonl").read_text()
    wire.clear()
    allowed = {**folders, "analysis.yaml": folders["analysis_allowed.yaml"]}
    assert run(TEXTS["study"], allowed, tmp_path / "study") == 1
    assert REACHED in capsys.readouterr().err and set(wire) == {"ask"}
    assert PERMISSION in (tmp_path / "study" / "config.yaml").read_text()


@pytest.mark.parametrize("leave", ["", "yes", "Ethics board", "1 2 3 4", "\u200b \u200b \u200b", "— – …"])
def test_leave_says_who_and_why(
    leave: str, folders: dict[str, Path], wire: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(IMAGES["generate"], folders, tmp_path / "out", AWAY, "--loading.connection.egress-permission", leave) == 1
    )
    assert SENTENCE in capsys.readouterr().err and wire == []


def test_leave_is_that_of_the_run_for_as_long_as_it_goes_on(
    folders: dict[str, Path], wire: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Patience may change when a run is continued; under whose leave it sends may not."""
    flag = "--loading.connection.egress-permission"
    for leave, more, reported in (
        (PERMISSION, (), REACHED),
        (PERMISSION, ("--loading.connection.tries", "1"), REACHED),
        ("Somebody else, for fun", (), "holds a run with other settings (--loading.connection.egress-permission was"),
    ):
        assert run(IMAGES["generate"], folders, tmp_path / "out", AWAY, flag, leave, *more) == 1
        assert reported in capsys.readouterr().err


@pytest.mark.parametrize(
    "address",
    [
        "HTTPS://elsewhere.example/v1#m",
        "Http://elsewhere.example/v1#m",
        " https://elsewhere.example/v1#m",
        "\thttps://elsewhere.example/v1#m",
        "http://127.0.0.1@elsewhere.example/v1#m",
        "http://127.0.0.1:80@elsewhere.example/v1#m",
        "http://127.0.0.1\\@elsewhere.example/v1#m",
        "http://elsewhere.example\\@127.0.0.1/v1#m",
        "http://127.0.0.1.elsewhere.example/v1#m",
        "http://localhost.elsewhere.example/v1#m",
        "http://elsewhere.example/127.0.0.1#localhost",
        "http://elsewhere.example?host=127.0.0.1#m",
        "http://2130706433/v1#m",
        "http://0x7f000001/v1#m",
        "http://127.1/v1#m",
        "http://0177.0.0.1/v1#m",
        "http://0.0.0.0/v1#m",
        "http://[::2]/v1#m",
        "http://[::ffff:192.0.2.1]/v1#m",
        "http://192.0.2.1/v1#m",
        "http:elsewhere.example/v1#m",
        "http:///127.0.0.1/v1#m",
        "https://#m",
    ],
)
def test_what_is_not_plainly_this_machine_is_elsewhere(
    address: str, folders: dict[str, Path], wire: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(IMAGES["generate"], folders, tmp_path / "out", address) == 1
    assert SENTENCE in capsys.readouterr().err and wire == [] and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:9/v1#m", "http://localhost/v1#m", "http://LOCALHOST:9/v1#m", "http://[::1]:80/v1#m",
     "https://127.9.9.9/v1#m"],
)  # fmt: skip
def test_this_machine_needs_no_leave(
    address: str, folders: dict[str, Path], wire: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(IMAGES["generate"], folders, tmp_path / "out", address) == 1
    assert REACHED in capsys.readouterr().err and is_loopback(address)


def test_what_no_patient_is_behind_needs_no_leave(
    folders: dict[str, Path], wire: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(IMAGES["generate"].replace("patients", "drawn"), folders, tmp_path / "out") == 1
    assert REACHED in capsys.readouterr().err


@pytest.mark.parametrize("name", ["parts:{}+builtin:general", "hf:{}", "retrieval:{}", "stub:{}", "builtin:{}"])
def test_an_address_inside_another_name_is_no_address(
    name: str, folders: dict[str, Path], wire: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such names are opened on this machine or not at all."""
    assert run(IMAGES["generate"], folders, tmp_path / "out", name.format(AWAY)) == 1
    assert wire == [] and "Traceback" not in capsys.readouterr().err


def test_a_surrogate_and_its_parts_are_weights(
    folders: dict[str, Path], wire: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "extract --victim stub:normal --data {patients} --method none --surrogate "
    for surrogate in ("{model}", "parts:{model}+builtin:general", "parts:builtin:encoder+{model}"):
        assert run(words + surrogate, folders, tmp_path / "out") == 1
        assert wire == [] and "Traceback" not in capsys.readouterr().err


def test_the_sentence_hides_a_login() -> None:
    with pytest.raises(ConfigError) as caught:
        check_egress("https://me:secret@elsewhere.example/v1#m", [EgressData("corpus", synthetic=False)], None)
    assert "secret" not in str(caught.value)


def test_a_card_is_believed_only_when_it_says_true(tmp_path: Path) -> None:
    corpus = toy_corpus(tmp_path / "toy", 1)
    assert corpus.egress_data == EgressData(str(tmp_path / "toy"), synthetic=False)
    card = (tmp_path / "toy" / "card.yaml").read_text()
    for said, believed in (("true", True), ("false", False), ("null", False)):
        (tmp_path / "toy" / "card.yaml").write_text(f"{card}synthetic: {said}\n")
        assert load_corpus(tmp_path / "toy").egress_data.synthetic is believed
    for said in ("'true'", "1", "[true]", "certainly"):
        (tmp_path / "toy" / "card.yaml").write_text(f"{card}synthetic: {said}\n")
        with pytest.raises(Exception, match="write true or false"):
            load_corpus(tmp_path / "toy")


def test_what_is_made_of_corpora_is_synthetic_only_when_all_of_them_are(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    scenes = make_scenes(ScenesConfig(n=2, size=32, workers=1), tmp_path / "scenes")

    def composed(name: str, **members: Path) -> Corpus:
        config = ComposeConfig(name=name, members={key: {"corpus": str(path)} for key, path in members.items()})
        return compose_corpus(plan(config), tmp_path / name)

    assert scenes.card.synthetic and "synthetic: true" in (tmp_path / "scenes" / "card.yaml").read_text()
    other = make_phantom(PhantomConfig(n=4, size=32, seed=4, workers=1), tmp_path / "other").path
    assert composed("both", a=folders["drawn"], b=other).card.synthetic
    assert not composed("mixed", a=folders["patients"], b=other).card.synthetic
    for name in ("drawn", "patients"):
        done = structure_corpus(load_corpus(folders[name]), StructureConfig(workers=1), tmp_path / f"{name}_structured")
        assert done.card.synthetic is (name == "drawn")


@pytest.mark.parametrize("name", [*IMAGES, *TEXTS])
def test_plain_http_to_another_machine_needs_a_flag(
    name: str, folders: dict[str, Path], wire: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where leave was given: the sentence names the flag, which allows it."""
    words = {**IMAGES, **TEXTS}[name]
    if name == "study":
        plain = yaml.safe_load((folders["analysis_allowed.yaml"]).read_text()) | {"processed": PLAIN}
        file = tmp_path / "analysis.yaml"
        file.write_text(yaml.safe_dump(plain))
        folders = {**folders, "analysis.yaml": file}
        flag, more = "structure.llm.connection", ()
    else:
        flag = "--llm.connection" if name in TEXTS else "--loading.connection"
        more = (f"{flag}.egress-permission", PERMISSION)
    assert run(words, folders, tmp_path / "out", PLAIN, *more) == 1
    said = capsys.readouterr().err
    assert "unencrypted" in said and f"{flag}.allow-insecure" in said and "Traceback" not in said
    assert wire == [] and not (tmp_path / "out" / "config.yaml").exists()
    if name == "study":
        plain["structure"]["llm"]["connection"]["allow_insecure"] = True
        file.write_text(yaml.safe_dump(plain))
    else:
        more = (*more, f"{flag}.allow-insecure")
    assert run(words, folders, tmp_path / "out", PLAIN, *more) == 1
    assert "unencrypted" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    ["score --references {made}/references.json --predictions {made}/predictions.json --metrics chexprompt:{model}",
     "prefer judge --candidates {made}/candidates.jsonl --data {drawn} --judge pairwise:{model}",
     "serve --model {model} --port 0", "serve --model stub:normal --text {model} --port 0",
     "serve rehearse --model {model} --data {drawn} --no-guard"],
)  # fmt: skip
def test_judges_and_servers_need_it_too(
    words: str, folders: dict[str, Path], wire: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = "--loading.connection" if words.startswith("serve") else "--llm.connection"
    leave = (f"{flag}.egress-permission", PERMISSION)
    study = load_corpus(folders["drawn"]).ids("train")[0]
    for name in ("references", "predictions"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"a": "Clear lungs."}))
    answers = [{"report": "Clear lungs."}, {"report": "Left effusion."}]
    (tmp_path / "candidates.jsonl").write_text(json.dumps({"id": study, "report": "Clear.", "answers": answers}))
    assert run(words, {**folders, "made": tmp_path}, tmp_path / "out", PLAIN, *leave) == 1
    assert f"{flag}.allow-insecure" in capsys.readouterr().err and wire == []


# Who may open a model by name without saying what it will be shown, and why.
_CHECK_THEMSELVES = {
    "evaluation/load_model.py": "the check itself",
    "serving/service.py": "the text model of a server: nobody knows whose texts it will be asked about",
}


def test_no_command_opens_a_model_without_the_check() -> None:
    """Whoever calls `load_model` or `load_text_model` is listed above with the reason; the client refuses then."""
    root = Path(cxrlab.__file__).parent
    found = set()
    for file in root.rglob("*.py"):
        if "load_" not in (text := file.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            called = node.func if isinstance(node, ast.Call) else None
            name = getattr(called, "id", None) or getattr(called, "attr", None)
            if name in ("load_model", "_load_by_name", "load_text_model"):
                found.add(file.relative_to(root).as_posix())
    assert found == set(_CHECK_THEMSELVES)


def _python(corpus: Corpus) -> dict[str, Callable[[], object]]:
    """Ways to send a patient's image or text from Python, none of them with a check of its own."""
    image = corpus.image(next(corpus.studies()))
    by_connection = Connection(egress_permission="yes")
    return {
        "load_model": lambda: cxrlab.load_model(AWAY).generate([image]),
        "too few words": lambda: cxrlab.load_model(AWAY, connection=by_connection).generate([image]),
        "accounts": lambda: HttpReportModel.load(AWAY).for_accounts(["a"]).generate([image]),
        "text": lambda: model_registry.load_text_model(AWAY).complete(["Mr Smith coughs."]),
        "asked once": lambda: CachedTextModel(HttpTextModel.load(AWAY)).complete(["Mr Smith coughs."]),
        "client": lambda: ChatClient("https://192.0.2.1/v1#m").ask({"messages": []}),
    }


@pytest.mark.parametrize("way", ["load_model", "too few words", "accounts", "text", "asked once", "client"])
def test_from_python_nothing_is_sent_without_a_permission(way: str, folders: dict[str, Path], wire: list[str]) -> None:
    """The client refuses by default: a caller that forgets to check sends nothing either."""
    with pytest.raises(ConfigError, match="nothing was sent") as caught:
        _python(load_corpus(folders["patients"]))[way]()
    assert 'permission="WHO AND WHY"' in str(caught.value) and wire == []


def test_a_permission_given_in_python_is_enough(folders: dict[str, Path], wire: list[str]) -> None:
    corpus = load_corpus(folders["patients"])
    image = corpus.image(next(corpus.studies()))
    with pytest.raises(ConfigError, match="is too short; name who allowed it"):
        cxrlab.load_model(AWAY, permission="yes")
    assert cxrlab.load_model("stub:normal", permission=PERMISSION).generate([image])
    drawn = load_corpus(folders["drawn"]).egress_data
    for ask in (
        lambda: cxrlab.load_model(AWAY, permission=PERMISSION).generate([image]),
        lambda: open_model(AWAY, None, [drawn]).generate([image]),
        lambda: model_registry.load_text_model(AWAY, Connection(egress_permission=PERMISSION)).complete(
            ["Mr Smith coughs."]
        ),
        lambda: open_text_model(AWAY, LLMConfig(), [drawn]).complete(["Nobody coughs."]),
        lambda: cxrlab.load_model("http://127.0.0.1:9/v1#m").generate([image]),
    ):
        wire.clear()
        with pytest.raises(RunError, match=REACHED):
            ask()
        assert set(wire) == {"ask"}


def test_what_is_synthetic_in_part_or_not_known_is_not_synthetic() -> None:
    patients, drawn = (EgressData("a", synthetic=known) for known in (False, True))
    assert all_synthetic([drawn, drawn]) and not all_synthetic([drawn, patients]) and not all_synthetic([])


def test_no_test_reaches_beyond_this_machine() -> None:
    """The guard of conftest.py: names and addresses elsewhere fail before anything is sent."""
    for reach in (
        lambda: socket.getaddrinfo("elsewhere.example", 80),
        lambda: socket.create_connection(("192.0.2.1", 80)),
        lambda: socket.socket().connect(("192.0.2.1", 80)),
        lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"", ("192.0.2.1", 80)),
    ):
        with pytest.raises(pytest.fail.Exception, match="another host"):
            reach()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass
