from __future__ import annotations

import pytest

import cxrlab
from cxrlab.core.errors import ConfigError
from cxrlab.models.load_settings import LoadSettings


def test_settings_are_changed_by_name_and_a_slip_is_met_with_the_nearest() -> None:
    assert LoadSettings().but(dtype="bfloat16", device="cpu") == LoadSettings(device="cpu", dtype="bfloat16")
    with pytest.raises(ConfigError, match="Did you mean 'dtype'"):
        LoadSettings().but(dtyp="float32")


@pytest.mark.parametrize("wrong", [{"dtype": "float8"}, {"attention": "flash"}, {"device": ""}])
def test_what_cannot_be_meant_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        LoadSettings().but(**wrong)


def test_the_package_takes_them_as_keywords() -> None:
    """A stub has nothing to load and passes over them; a name that is none is refused before anything is loaded."""
    assert cxrlab.load_model("stub:normal", device="cpu", dtype="float32").name == "stub:normal"
    with pytest.raises(ConfigError, match="no setting 'gpu'"):
        cxrlab.load_model("stub:normal", gpu=True)
