"""MIMIC-CXR's published section rules, beside ours where both differ."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import Imported, import_corpus
from cxrlab.data.official_sections import official_report, official_sections
from cxrlab.data.sections import parse
from cxrlab.data.sources import mimic_cxr

FIXTURES = Path(__file__).parent.parent / "sources" / "fixtures"

# What -> (report, findings by the official rules, findings by ours).
DIFFER = {
    "a header without its one blank": ("\nFINDINGS: Clear.\n IMPRESSION: Normal.", None, "Clear."),
    "a header in mixed case": ("\n Findings: Clear.\n IMPRESSION: Normal.", None, "Clear."),
    "an empty header before": ("\n INDICATION:\n FINDINGS: Clear.\n IMPRESSION: Normal.", None, "Clear."),
    "two headers on one line": ("\n TECHNIQUE: AP. FINDINGS: Clear.\n IMPRESSION: Normal.", None, "Clear."),
    "two sections of one name": (
        "\n FINDINGS: Left effusion.\n FINDINGS: Clear.\n IMPRESSION: Small.",
        "Clear.",
        "Left effusion. Clear.",
    ),
    "an organ's header": (
        "\n FINDINGS: AP view.\n LUNGS: Clear.\n IMPRESSION: Normal.",
        "AP view.",
        "AP view. LUNGS: Clear.",
    ),
    "text without a header": (" CHEST RADIOGRAPH\n \n The lungs are clear.", None, "The lungs are clear."),
    "the image's name as a header": (
        "\n PORTABLE AP CHEST: Clear.\n IMPRESSION: Normal.",
        "Clear.",
        "Clear.",
    ),
}


def words(text: str | None) -> str | None:
    return None if text is None else " ".join(text.split())


@pytest.mark.parametrize("what", DIFFER)
def test_the_official_rules_are_reproduced_with_their_errors(what: str) -> None:
    report, official, ours = DIFFER[what]
    assert (official_report(report).findings, words(parse(report).report.findings)) == (official, ours)


def test_equal_where_the_layout_is_as_the_rules_expect() -> None:
    report = "FINAL REPORT\n INDICATION:  Cough.\n \n FINDINGS: \n Clear\n lungs.\n \n IMPRESSION: \n Normal.\n"
    assert official_report(report).findings == words(parse(report).report.findings) == "Clear lungs."
    found = official_report(report)
    assert (found.indication, found.impression) == ("Cough.", "Normal.")


def test_special_sections() -> None:
    last = official_sections("FINAL\n COMPARISON: None.\n \n The lungs are clear.\n \n No effusion.")
    assert (last["comparison"], last["last_paragraph"]) == ("None.", "The lungs are clear.\n \n No effusion.")
    both = official_report("\n FINDINGS/IMPRESSION: Clear.\n HISTORY: Cough.")
    assert (both.findings, both.impression, both.indication) == (None, "Clear.", "Cough.")
    assert official_report("\n NDICATION: Cough.").impression == "Cough."  # a mistake of the published table
    assert official_report("\n FINDINGS: Clear.", "s50525523").findings is None  # its sections were made by hand
    assert set(official_sections("")) == {"full report"}


def test_mimic_cxr_is_imported_with_official_sections(tmp_path: Path) -> None:
    """The findings of one report get a header in mixed case, which the official rules do not see."""
    root = shutil.copytree(FIXTURES / "mimic_cxr", tmp_path / "mimic")
    report = next(file for file in sorted(root.rglob("s*.txt")) if "\n FINDINGS:" in file.read_text())
    report.write_text(report.read_text().replace("FINDINGS:", "Findings:"))
    found = {}
    for sections in (None, "official"):
        plan = mimic_cxr.plan(ImportConfig(root, sections=sections))  # type: ignore[arg-type]
        found[sections] = [one for one in map(plan.read, plan.items) if isinstance(one, Imported)]
        assert ("official sections" in plan.layout) == bool(sections)
    differ = 0
    for ours, official in zip(found[None], found["official"], strict=True):
        assert ours.study.report == official.study.report and ours.study.id == official.study.id
        expected = official_report(official.study.report or "", official.study.id)
        assert (official.study.sections or official_report("")) == expected
        other = words((ours.study.sections or expected).findings) != expected.findings
        assert (mimic_cxr.OTHER_FINDINGS in official.remarks) == other
        assert mimic_cxr.OTHER_FINDINGS not in ours.remarks
        differ += other
    assert differ == 1


def test_other_data_sets_have_no_official_sections(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sections='official' has no effect on nih-cxr14"):
        import_corpus("nih-cxr14", ImportConfig(FIXTURES / "nih_cxr14", sections="official"), tmp_path / "c")
    with pytest.raises(ConfigError, match="sections='offical' is unknown"):
        ImportConfig(tmp_path, sections="offical")  # type: ignore[arg-type]
