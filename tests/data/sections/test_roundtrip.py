"""Known sections, flattened to one text in several styles, come back from the parser."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cxrlab.core.errors import DataError

ROOT = Path(__file__).resolve().parents[3]
INVENTED = Path(__file__).parent / "openi"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sections_roundtrip", ROOT / "experiments" / "sections_roundtrip.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


def test_invented_reports_come_back_but_the_one_that_holds_a_header(script: ModuleType) -> None:
    """The third says 'Indication: fever' under INDICATION, which cannot be distinguished from a second header."""
    found = [change for number, parts in script.reports(INVENTED) for change in script.differences(number, parts)]
    assert {(change.report, change.section, change.header) for change in found} == {("3", "indication", "indication")}


def test_a_loss_would_be_seen(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser that finds nothing differs in every filled section and is explained by nothing."""
    monkeypatch.setattr(script, "parse", lambda _: script.parse_nothing)
    script.parse_nothing = type("Parsed", (), {"report": script.Report()})()
    number, parts = next(iter(script.reports(INVENTED)))
    found = list(script.differences(number, parts))
    assert len(found) == len(parts) * len(script.STYLES)
    assert all(change.header is None for change in found)


def test_a_folder_without_reports_is_refused(script: ModuleType, tmp_path: Path) -> None:
    """The message says what to give."""
    with pytest.raises(DataError, match="NLMCXR_reports.tgz"):
        list(script.reports(tmp_path))


@pytest.mark.real_data
def test_open_i_comes_back(script: ModuleType, real_data: Path) -> None:
    """All 3,955 reports in every style: what differs holds header-like text, and that is under 1 % of the sections."""
    every = list(script.reports(real_data / "openi"))
    found = [change for number, parts in every for change in script.differences(number, parts)]
    assert len(every) == 3955
    assert [change for change in found if change.header is None] == []
    changed = {(change.report, change.section) for change in found}
    assert 0 < len(changed) < 0.01 * sum(len(parts) for _, parts in every)
