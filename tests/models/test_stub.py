from __future__ import annotations

import numpy as np
import pytest

from cxrlab.core.errors import UnknownName
from cxrlab.models.baselines import REPORTS, Stub


def test_the_same_words_for_every_image() -> None:
    images = [np.zeros((4, 4), np.float32), np.ones((9, 5), np.float32), np.eye(6, dtype=np.float32)]
    texts = [answer.text for answer in Stub("normal").generate(images)]
    assert len(texts) == 3 and len(set(texts)) == 1


def test_the_normal_report_says_clear_lungs_and_the_empty_one_nothing() -> None:
    image = np.zeros((4, 4), np.float32)
    assert "lungs are clear" in Stub("normal").generate([image])[0].text
    assert Stub("empty").generate([image])[0].text == ""


def test_it_promises_no_gradients_and_no_probabilities() -> None:
    can = Stub("normal").capabilities
    assert can.batch and not (can.gradients or can.log_probabilities or can.attention or can.black_box)


def test_an_unknown_stub_lists_those_that_exist() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'normal'") as error:
        Stub("norml")
    assert all(f"stub:{name}" in str(error.value) for name in REPORTS)
