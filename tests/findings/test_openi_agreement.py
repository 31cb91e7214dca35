"""The reader on real reports, against codes that people gave them; and the table that ties the two together."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cxrlab.core.errors import DataError
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import import_corpus

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
INVENTED = Path(__file__).parent / "cases" / "openi"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("openi_agreement", ROOT / "experiments" / "openi_agreement.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("code", "first"),
    [
        ("Opacity/lung/base/left", "lung opacity"),
        ("Opacity/lung/bilateral/interstitial", "interstitial pattern"),
        ("Calcinosis/aorta", "aortic calcification"),
        ("Calcinosis/lung/hilum/lymph nodes/right", "granuloma"),
        ("Aorta, Thoracic/tortuous/mild", "tortuous aorta"),
        ("Shoulder/right/degenerative", "degenerative change"),
        ("Subcutaneous  Emphysema", "subcutaneous emphysema"),
    ],
)
def test_a_code_means_its_narrowest_row(script: ModuleType, code: str, first: str) -> None:
    """The heading must be the code's own: an aorta that is a qualifier of calcinosis is no row of the aorta."""
    assert script.meaning_of(code, script.table()).accepts[0] == first


def test_a_code_without_a_row_is_counted_apart(script: ModuleType) -> None:
    """What the table does not know must not count for or against the reader."""
    assert script.meaning_of("Unheard Of/left", script.table()) is None


def test_counts_of_invented_reports(script: ModuleType) -> None:
    """Six indexed reports with text; seven codes, all found; one pneumothorax is read that nobody coded."""
    rows = script.table()
    loaded = script.load(INVENTED, rows)
    reports = loaded.reports
    assert [report.id for report in reports] == ["CXR1", "CXR2", "CXR3", "CXR4", "CXR5", "CXR6"]
    assert (loaded.not_indexed, loaded.without_text, loaded.all) == (1, 1, 8)
    sums = sum(column.sum(axis=0) for column in script.all_counts(reports, rows).values())
    assert sums.tolist() == [7, 7, 8, 7]
    assert [sorted(report.unbacked) for report in reports if report.unbacked] == [["pneumothorax"]]


def test_observations_of_one_label_are_counted_as_one(script: ModuleType) -> None:
    """Two reports are coded as normal and read as such; a report with two codes of one label counts once."""
    reports = script.load(INVENTED, script.table()).reports
    labels = script.label_counts(reports)
    assert labels["No Finding"].sum(axis=0).tolist() == [2, 2, 2, 2]
    assert all(column.max() <= 1 for column in labels.values())


def test_an_imported_corpus_gives_the_same_as_its_source(script: ModuleType, tmp_path: Path) -> None:
    """The script reads both; what the import keeps is enough for it."""
    corpus = import_corpus("openi", ImportConfig(INVENTED, workers=1), tmp_path / "corpus").path
    rows = script.table()
    assert script.load(corpus, rows) == script.load(INVENTED, rows)


def test_a_folder_without_the_file_is_named(script: ModuleType, tmp_path: Path) -> None:
    """The remedy stands in the message."""
    with pytest.raises(DataError, match="does not hold the reports of Open-I"):
        script.load(tmp_path, script.table())


@pytest.mark.real_data
def test_agreement_with_the_codes_of_open_i(script: ModuleType, real_data: Path) -> None:
    """Just below what was measured (0.911, 0.976, 0.943; 96.3 %): it guards against a rule that breaks real text."""
    folder = real_data / "openi"
    rows = script.table()
    loaded = script.load(folder, rows)
    reports = loaded.reports
    assert (loaded.all, len(reports), loaded.not_indexed, loaded.without_text) == (3955, 3832, 95, 28)
    sums = sum(column.sum(axis=0) for column in script.all_counts(reports, rows).values())
    precision, recall, f1 = script.rates(sums)
    assert precision > 0.90 and recall > 0.965 and f1 > 0.935
    normal = [report for report in reports if report.codes == (script.NORMAL,)]
    assert sum(not report.read for report in normal) > 0.95 * len(normal)
