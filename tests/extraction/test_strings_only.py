"""Attacking code gets words and nothing else of a victim."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import recording_victims as helper
from tables import every_row

from cxrlab import extraction
from cxrlab.core.model_interfaces import Capabilities, Generated
from cxrlab.extraction.query_ledger import Ledger
from cxrlab.extraction.records import AuditScope
from cxrlab.extraction.victim_client import VictimClient, response_of

_HARMLESS = (str, bytes, int, float, type, types.ModuleType)
# Names with double underscores that lead on. `__closure__` is not among them: whoever takes a function apart finds
# everything; see the head of `client`.
_LEADING = {"__dict__", "__self__", "__defaults__", "__kwdefaults__", "__wrapped__", "__slots__"}


class Poison:
    """Anything done with it fails the test."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"the client looked at .{name} of what only the victim may know")

    def _fail(self, *_: Any) -> Any:
        raise AssertionError("the client used what only the victim may know")

    __bool__ = __int__ = __float__ = __index__ = __len__ = __iter__ = __eq__ = __hash__ = __str__ = __repr__ = _fail
    __lt__ = __gt__ = __le__ = __ge__ = __format__ = __reduce__ = __reduce_ex__ = _fail  # type: ignore[assignment]


class Clever(str):
    """A text that carries more than its letters."""

    logits = (0.1, 0.9)


class Secretive:
    """A victim of which name, capabilities and `generate` may be used; every other attribute fails the test."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def __getattribute__(self, name: str) -> Any:
        if name in ("name", "capabilities", "generate"):
            return object.__getattribute__(self, name)
        raise AssertionError(f"somebody looked at .{name} of the victim")

    name = "test:secretive"
    capabilities = Capabilities(gradients=True, log_probabilities=True, attention=True)

    def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
        extra = {"logits": Poison(), "hidden": Poison(), "vocabulary": Poison()}
        poison: Any = Poison()
        return [Generated(Clever(f"Report {place}."), poison, 7, extra) for place, _ in enumerate(images)]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.sqlite", AuditScope(Secretive.name, 10)) as opened:
        yield opened


def reachable(start: object) -> Iterator[object]:
    """Everything that attributes, slots, items and elements lead to, by name."""
    seen: dict[int, object] = {}  # holding on to each keeps its id from being used again
    waiting = [start]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        yield thing
        if isinstance(thing, _HARMLESS):
            continue
        if isinstance(thing, dict):
            waiting.extend([*thing.keys(), *thing.values()])
        elif isinstance(thing, (list, tuple, set, frozenset)):
            waiting.extend(thing)
        names = [name for name in dir(thing) if not name.startswith("__") or name in _LEADING]
        waiting.extend(value for name in names if (value := getattr(thing, name, None)) is not None)


def test_a_client_needs_only_reports(tmp_path: Path, ledger: Ledger) -> None:
    client = VictimClient(Secretive(), ledger, tmp_path)
    answers = client.query(helper.small_images(3), 0, 0)
    assert answers == ["Report 0.", "Report 1.", "Report 2."]
    assert [type(answer) for answer in answers] == [str] * 3
    assert [(one.tokens, type(one.report)) for one in ledger.queries()] == [(7, str)] * 3
    assert [type(answer) for answer in client.query(helper.small_images(3), 0, 0)] == [str] * 3  # from the ledger too


def test_no_attribute_of_a_client_leads_to_the_victim(tmp_path: Path, ledger: Ledger) -> None:
    client = VictimClient(Secretive(), ledger, tmp_path)
    client.query(helper.small_images(3), 0, 0)
    assert [name for name in dir(client) if not name.startswith("_")] == ["left", "query"]
    assert not hasattr(client, "__dict__")
    with pytest.raises(AttributeError):
        client.victim = "planted"  # type: ignore[attr-defined]
    found = list(reachable(client))
    assert len(found) > 100  # the walk walks
    kinds = {type(thing) for thing in found}
    assert kinds.isdisjoint({Secretive, Poison, Clever, Generated, Capabilities})


def test_the_walk_would_find_a_victim(tmp_path: Path, ledger: Ledger) -> None:
    """The control: a client that kept its victim under any name is caught."""

    class Leaky(VictimClient):
        __slots__ = ("_deep",)

    client = Leaky(Secretive(), ledger, tmp_path)
    client._deep = [{"spare": types.SimpleNamespace(inner=Generated("x"))}]  # type: ignore[attr-defined]
    assert any(type(thing) is Generated for thing in reachable(client))


def test_words_are_plain_whatever_they_were() -> None:
    assert type(response_of(Generated(Clever("x"))).report) is str
    assert response_of(Generated("a\ud83eb \N{LUNGS}")).report == "a\N{REPLACEMENT CHARACTER}b \N{LUNGS}"
    counts: list[Any] = [True, -1, 2.0, "3", None]
    assert [response_of(Generated("x", tokens=count)).tokens for count in counts] == [None] * 5
    assert response_of(Generated("x", tokens=0)).tokens == 0
    assert not response_of(Generated("x", extra={"refused": "true"})).refused  # the mark is True itself


ATTACKS = ("attack_rounds", "adaptive_knockoff", "adaptive_attackers", "surrogate", "rule_oracles")
FORBIDDEN = {
    *(
        "cxrlab.evaluation.load_model",
        "cxrlab.evaluation.generate",
        "cxrlab.models.model_registry",
        "cxrlab.extraction.audit",
    ),
    *("cxrlab.extraction.victim_client", "cxrlab.extraction.query_ledger", "cxrlab.extraction.preflight"),
}


@every_row("name", ATTACKS)
def test_no_attack_opens_a_victim_for_itself(name: str) -> None:
    """The settings name the victim; attacking code has nothing by which to load it, nor its images, nor the ledger."""
    tree = ast.parse((Path(extraction.__file__).parent / f"{name}.py").read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {f"{node.module}.{alias.name}" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
                 for alias in node.names}  # fmt: skip
    assert imported & FORBIDDEN == set()
    looked_at = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    assert not {"data", "victim_run", "victim_decoding"} & set(looked_at)
    assert looked_at.count("victim") == (
        1 if name == "attack_rounds" else 0
    )  # its name, for the card of the transcript
