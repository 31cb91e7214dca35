from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrlab.core.errors import DataError
from cxrlab.models.baselines import COMPONENTS, Exemplar, Index, Retrieval, describe


def image(number: int, height: int = 40, width: int = 40) -> np.ndarray:
    """A smooth picture with values well inside [0, 1], so that it survives shrinking."""
    rng = np.random.default_rng(number)
    coarse = rng.random((5, 5))
    rows, columns = np.linspace(0, 4, height), np.linspace(0, 4, width)
    across = np.array([np.interp(columns, range(5), line) for line in coarse])
    down = np.array([np.interp(rows, range(5), line) for line in across.T]).T
    return (0.2 + 0.6 * down).astype(np.float32)


def model_of(count: int, source: str = "toy") -> Retrieval:
    return Retrieval(source, (Exemplar(f"s{k}", f"p{k}", image(k), f"Report {k}.") for k in range(count)))


@pytest.mark.parametrize("count", [2, 3, 40, 300])
def test_a_image_of_the_library_finds_itself_at_cosine_one(count: int) -> None:
    model = model_of(count)
    answers = model.generate([image(k) for k in range(count)])
    assert [answer.text for answer in answers] == [f"Report {k}." for k in range(count)]
    assert all(answer.extra["similarity"] == pytest.approx(1.0, abs=1e-3) for answer in answers)
    assert [answer.extra["neighbour"] for answer in answers] == [f"s{k}" for k in range(count)]


def test_noise_and_another_resolution_do_not_hide_the_image() -> None:
    """A second exposure at twice the resolution: pixel noise averages out in the thumbnail."""
    model = model_of(60)
    rng = np.random.default_rng(7)
    again = [np.clip(image(k, 80, 80) + rng.normal(0, 0.03, (80, 80)), 0, 1).astype(np.float32) for k in range(60)]
    found = [answer.extra["neighbour"] for answer in model.generate(again)]
    assert found == [f"s{k}" for k in range(60)]


@given(gain=st.floats(0.3, 1.2), offset=st.floats(0.0, 0.15))
@settings(max_examples=25, deadline=None)
def test_exposure_does_not_enter_a_description(gain: float, offset: float) -> None:
    """Brightness and contrast are the machine's, not the patient's: a·x + b describes the same image."""
    base = image(3)
    assert np.allclose(describe(base), describe((gain * base + offset).astype(np.float32)), atol=2e-3)


def test_a_description_has_mean_zero_and_variance_one() -> None:
    values = describe(image(5, 61, 33))
    assert values.shape == (256,) and values.dtype == np.float32
    assert values.mean() == pytest.approx(0, abs=1e-5) and values.std() == pytest.approx(1, abs=1e-4)


def test_a_wide_image_keeps_its_shape_between_black_borders() -> None:
    """32 x 16 in a square of 32 is 8 rows of border above and below: a quarter of the sixteen rows each."""
    rows = describe(np.ones((16, 32), np.float32)).reshape(16, 16)
    assert (rows[:3] < 0).all() and (rows[-3:] < 0).all() and (rows[5:11] > 0).all()


def test_a_image_of_one_grey_has_no_description_and_similarity_zero() -> None:
    grey = np.full((20, 20), 0.4, np.float32)
    assert not describe(grey).any()
    rows = np.stack([describe(image(k)) for k in range(5)])
    index = Index.build(np.vstack([rows, -rows]))  # mean zero, so that the grey image lies exactly in the middle
    assert index.nearest(describe(grey)[None])[1][0] == pytest.approx(0.0, abs=1e-6)


def test_answers_do_not_depend_on_the_company() -> None:
    """Alone, in another order or in more than one batch of the matrix product: the same neighbour."""
    model = model_of(30)
    queries = [image(1000 + k) for k in range(300)]
    together = [answer.extra["neighbour"] for answer in model.generate(queries)]
    assert together == [model.generate([query])[0].extra["neighbour"] for query in queries]
    assert together[::-1] == [answer.extra["neighbour"] for answer in model.generate(queries[::-1])]


def test_directions_are_fewer_than_images_and_have_equal_variance() -> None:
    """Whitening: before they are scaled to length 1, the images have variance 1 along each direction."""
    rows = np.stack([describe(image(k)) for k in range(400)])
    index = Index.build(rows)
    assert 0 < index.axes.shape[1] <= COMPONENTS
    assert np.allclose(((rows - index.mean) @ index.axes).var(axis=0), 1.0, atol=1e-2)
    assert Index.build(rows[:4]).axes.shape[1] == 3


def test_one_image_alone_is_everybodys_neighbour() -> None:
    assert model_of(1).generate([image(9)])[0].text == "Report 0."


def test_a_library_without_images_is_an_error_that_names_it() -> None:
    with pytest.raises(DataError, match="toy holds no image"):
        model_of(0)


def test_it_is_named_after_its_library() -> None:
    model = model_of(2, source="corpora/a")
    assert model.name == "retrieval:corpora/a" and model.capabilities.batch
