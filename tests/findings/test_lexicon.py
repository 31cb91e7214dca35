import json
import re
from dataclasses import replace

import pytest

from cxrlab.core.errors import DataError, UnknownName
from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Change, Severity
from cxrlab.findings import lexicon as lexicon_module
from cxrlab.findings.lexicon import LEXICONS, load_lexicon, templates
from cxrlab.findings.realiser import Realiser, can_lead


def test_an_unknown_lexicon_is_refused_with_the_names():
    with pytest.raises(UnknownName, match="'C' is not a lexicon.*A, B"):
        load_lexicon("C")


def test_a_lexicon_with_an_unknown_field_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "lexicon_a.json"
    path.write_text(json.dumps({**json.loads(LEXICONS["A"].read_text()), "openings": []}))
    monkeypatch.setattr(lexicon_module, "LEXICONS", {"A": path})
    load_lexicon.cache_clear()
    with pytest.raises(DataError, match="openings"):
        load_lexicon("A")
    load_lexicon.cache_clear()


# Nouns that a degree does not fit, with the words that are absurd beside them.
MISFITS = [
    r"(moderate-grade|moderate-sized|medium|high-grade|extensive) degree",
    r"(medium-volume|moderate-volume|mid-sized|massive) .*(consolidat|pneumon|atelecta|collapse|filling|infect)",
    r"(moderate|severe|extensive|marked|intermediate|medium-grade|pronounced|gross) (linear|plate-like|subsegmental"
    r"|discoid|streaky|strips? of collapse)",
    r"bands? of (moderate|severe|extensive)",
    r"slim|(massive|substantial|medium-sized) (rim|layer|margin|cap|air cap|amount|band|strip|quantity)",
    r"(thin|narrow|wide) .*(hernia|stomach|hydrothora|fluid)",
    r"volume (amount|volume)",
]


@pytest.mark.parametrize("lexicon", ["A", "B"])
def test_degrees_fit_their_nouns(examples, lexicon):
    """Every noun phrase with every word of its scale, some forty times each."""
    for rows in examples.values():
        for finding in rows:
            for seed in range(20):
                text = Realiser(load_lexicon(lexicon), generator(seed)).noun(finding)[0]
                assert not any(re.search(pattern, text) for pattern in MISFITS), text


@pytest.mark.parametrize("lexicon", ["A", "B"])
def test_low_lung_volumes_get_better_or_worse_but_never_more_or_less(lexicon):
    """'Reduced lung volumes, decreased' would mean the opposite of improved."""
    doubtful = re.compile(
        r"\b(more|less\w*|up|down|(in|de)creas\w+|greater|smaller|larger|reced\w+|declin\w+|grow\w+)\b"
    )
    clear = {Change.INCREASED: r"worse|poorer|weaker|deteriorat", Change.DECREASED: r"better|improv|fuller|recover"}
    low = Finding("low lung volumes", severity=Severity.MODERATE)
    for change, words in clear.items():
        options = load_lexicon(lexicon).changes["inflation"][change]
        assert all(re.search(words, option) and not doubtful.search(option) for option in options)
        for seed in range(30):
            for fragment in (True, False):
                stated = Realiser(load_lexicon(lexicon), generator(seed)).present(
                    replace(low, change=change), fragment=fragment
                )
                assert re.search(words, stated) and not doubtful.search(stated), stated
        assert not can_lead(replace(low, change=change))


def test_the_lexicons_grade_in_words_of_their_own():
    """A model that learned 'slightly' from A must not find it again in B."""

    def words(name):
        return {word for scale in load_lexicon(name).scales.values() for rows in scale.values() for word in rows}

    assert words("A") & words("B") == set()


# Text that is false on some films whatever else they show, or attaches a change to the wrong noun.
OVERCLAIMS = [
    "equal height", "one half", "cardiothoracic ratio", "supine",
    r"\barises\b", "each pleural cavity on both sides", "fluid overload$",
]  # fmt: skip


@pytest.mark.parametrize("lexicon", ["A", "B"])
def test_no_text_claims_what_a_image_cannot_show(lexicon):
    """The left dome stands lower; a ratio means nothing on AP films; free gas needs an upright patient."""
    texts = [text for text in templates(load_lexicon(lexicon)) if any(re.search(p, text) for p in OVERCLAIMS)]
    assert texts == []
