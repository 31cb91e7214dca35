from __future__ import annotations

import pytest
from tables import every_row

from cxrlab.core.egress import EgressData, check_egress, check_key_recipients, is_valid_permission
from cxrlab.core.errors import ConfigError

PATIENTS, PHANTOMS = EgressData("corpora/mimic", synthetic=False), EgressData("corpora/phantom", synthetic=True)
ELSEWHERE = "https://models.example/v1#m"


@pytest.mark.parametrize(
    "model", ["hf:folder", "builtin:reporter", "stub:normal", "http://127.0.0.1:8000/v1#m", "rules"]
)
def test_what_stays_on_this_machine_may_be_shown_everything(model: str) -> None:
    check_egress(model, [PATIENTS], None)


@pytest.mark.parametrize(
    "model", [ELSEWHERE, ELSEWHERE.upper(), " https://models.example#m", "http://127.0.0.1@e.example#m"]
)
def test_patients_data_do_not_leave_without_leave(model: str) -> None:
    with pytest.raises(ConfigError, match="nothing was sent.*--loading.connection.egress-permission") as error:
        check_egress(model, [PHANTOMS, PATIENTS], None)
    assert "corpora/mimic may hold" in str(error.value) and "phantom" not in str(error.value)
    check_egress(model, [PHANTOMS], None)
    check_egress(model, [], None)
    check_egress(model, [PATIENTS], "Dr Grey, ethics vote 12")


def test_the_message_names_the_flag_of_the_command_and_hides_a_login() -> None:
    with pytest.raises(ConfigError, match="--llm.connection.egress-permission") as error:
        check_egress("https://me:hidden@models.example/v1#m", [PATIENTS], "yes", "--llm.connection")
    assert "hidden" not in str(error.value)


@every_row(
    ("said", "enough"),
    [
        (None, False),
        ("", False),
        ("yes", False),
        ("I may", False),
        ("1 2 3 - !", False),  # no words
        ("\u202e\u202e \x1b \x07", False),
        ("the owner agreed", True),
        ("Dr Grey, vote 12", True),
    ],
)
def test_leave_says_who_and_why(said: str | None, enough: bool) -> None:
    assert is_valid_permission(said) is enough


def test_leave_that_is_kept_nowhere_is_none() -> None:
    leave = "Dr. Who, for the audit"
    with pytest.raises(ConfigError, match="Give a run folder with --out RUN"):
        check_egress(ELSEWHERE, [PATIENTS], leave, has_run_folder=False)
    check_egress(ELSEWHERE, [PHANTOMS], leave, has_run_folder=False)
    check_egress("http://127.0.0.1/v1#m", [PATIENTS], leave, has_run_folder=False)


def test_one_key_is_not_shown_to_two_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [ELSEWHERE, "https://victim.example/v1#m"]
    monkeypatch.delenv("KEY", raising=False)
    check_key_recipients(both, "KEY")
    monkeypatch.setenv("KEY", "sk-hidden")
    with pytest.raises(ConfigError, match="KEY would be sent to models.example and to victim.example") as error:
        check_key_recipients(both, "KEY")
    assert "hidden" not in str(error.value)
    check_key_recipients([ELSEWHERE, "https://models.example/other#n", "http://127.0.0.1/v1#m", "hf:folder"], "KEY")
