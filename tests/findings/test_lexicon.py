import pytest

from cxrlab.core.errors import UnknownName
from cxrlab.findings.lexicon import load_lexicon, pairs, phrases, table


def test_an_unknown_lexicon_is_refused_with_the_names():
    with pytest.raises(UnknownName, match="'C' is not a lexicon.*A, B"):
        load_lexicon("C")


def test_a_block_of_phrases_is_read_by_its_marks():
    row = phrases("""
        edema (degree)
          - edema
          ~ pulmonary edema
          {sev} edema
          + {sev} wet lungs
          = the lungs {are} wet
    """)["edema"]
    assert (row.absent, row.gone, row.clauses) == (("edema",), ("pulmonary edema",), ("the lungs {are} wet",))
    assert row.nouns == ("{sev} edema", "+ {sev} wet lungs")
    assert row.scale == "degree" and len(row.ways) == 3


def test_tables_and_pairs():
    assert table("rib 3:\n third\n 3rd\nrib 4:\n fourth") == {"rib 3": ("third", "3rd"), "rib 4": ("fourth",)}
    assert pairs("on the {side} = on both sides") == (("on the {side}", "on both sides"),)
