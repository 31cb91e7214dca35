from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest

from cxrlab.core.egress import OPERATIONAL_FIELDS, Connection, connection_operational_fields
from cxrlab.core.errors import ConfigError
from cxrlab.core.llm_requests import LLMConfig, llm_operational_fields


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"tries": 0}, "tries=0 is not usable"),
        ({"concurrency": -1}, "concurrency=-1 is not usable"),
        ({"timeout_s": 0.0}, "timeout_s=0.0 is not usable"),
        ({"timeout_s": math.inf}, "timeout_s=inf is not usable"),
        ({"timeout_s": math.nan}, "timeout_s=nan is not usable"),
        ({"auth": "basic"}, "auth='basic' is unknown; choose bearer or api-key"),
    ],
)
def test_settings_that_cannot_work_are_reported(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Connection(**wrong)


@pytest.mark.parametrize("key", ["sk-hidden-0123", "sk_hidden_0123", "hidden0123456789abcdef", "HIDDEN KEY", ""])
def test_a_key_in_place_of_its_variables_name_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ConfigError, match="the NAME, in capitals, of an environment variable") as error:
        Connection(key_variable=key)
    assert "hidden" not in str(error.value).lower()


def test_every_setting_but_the_leave_may_differ_when_a_run_goes_on() -> None:
    """None of them changes an answer; under which leave all of it was sent must stand in the run's settings."""
    assert {*OPERATIONAL_FIELDS, "egress_permission"} == {field.name for field in fields(Connection)}
    assert connection_operational_fields("loading.connection")[0] == "loading.connection.key_variable"
    # How weights are loaded decides what is answered; whether they are downloaded does not.
    of_asking = {field.name for field in fields(LLMConfig)} - {"connection", "loading"} | {"loading.download"}
    assert set(llm_operational_fields("a")) == {f"a.{name}" for name in of_asking} | set(
        connection_operational_fields("a.connection")
    )
