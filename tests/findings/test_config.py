import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.findings.simulated_patients import CaseConfig


@pytest.mark.parametrize("settings", [{"normal": -0.1}, {"normal": 1.5}, {"faint": 2.0}, {"faint": float("nan")}])
def test_a_share_outside_zero_to_one_is_refused_by_name(settings):
    """The sentence names the setting and the range."""
    with pytest.raises(ConfigError, match=f"{next(iter(settings))}=.*from 0 to 1"):
        CaseConfig(**settings)
