"""Who may be audited without leave, and what the first sentence of an audit says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tables import every_row

from cxrlab.core.errors import ConfigError
from cxrlab.core.files import write_json
from cxrlab.core.model_interfaces import Capabilities
from cxrlab.extraction.preflight import THREAT, Permission, check_permission, recorded_authorisation, threat_model
from cxrlab.extraction.records import Price

WORDS = "Dr Ada Owner, yearly security test"
HERE, ELSEWHERE = Capabilities(), Capabilities(black_box=True)


@pytest.mark.parametrize(
    ("name", "capabilities"),
    [
        ("stub:normal", HERE),
        ("hf:runs/model", HERE),
        ("http://127.0.0.1:8000/v1#m", ELSEWHERE),
        ("http://127.8.9.1/v1#m", ELSEWHERE),
        ("https://[::1]:8000/v1#m", ELSEWHERE),
        ("http://LOCALHOST/v1#owner@model", ELSEWHERE),
    ],
)
def test_this_machine_needs_no_leave(name: str, capabilities: Capabilities) -> None:
    assert check_permission(name, capabilities, None) == Permission(remote=False, authorised=None)


@every_row(
    ("name", "capabilities"),
    [
        ("plugin:service", ELSEWHERE),
        ("https://api.example.org/v1#m", ELSEWHERE),
        ("HTTPS://api.example.org/v1#m", HERE),
        ("http://192.168.0.7/v1#m", HERE),
        ("http://0.0.0.0/v1#m", HERE),
        ("http://127.0.0.1.example.org/v1#m", HERE),
        ("http://localhost.example.org/v1#m", HERE),
        ("http://127.0.0.1@example.org/v1#m", HERE),
        ("http://example.org\\@127.0.0.1/v1#m", HERE),
        ("http://2130706433/v1#m", HERE),
        ("http://[::1/v1#m", HERE),
        ("http:///v1#m", HERE),
    ],
)
def test_everything_else_needs_leave(name: str, capabilities: Capabilities) -> None:
    for said in (None, "", "  ", "yes", "me please", "1 2 3 4", "! ! !"):
        with pytest.raises(ConfigError, match="i-am-authorised"):
            check_permission(name, capabilities, said)
    assert check_permission(name, capabilities, WORDS) == Permission(remote=True, authorised=WORDS)


def test_words_are_kept_in_one_harmless_line() -> None:
    kept = check_permission("stub:normal", HERE, " the owner \n of this\x1b[2J model ").authorised
    assert kept == "the owner of this\N{REPLACEMENT CHARACTER}[2J model"
    with pytest.raises(ConfigError, match="runs on this machine"):
        check_permission("stub:normal", HERE, "me")


def test_a_run_goes_on_under_the_leave_on_record_for_the_same_victim(tmp_path: Path) -> None:
    assert (
        recorded_authorisation(tmp_path, "stub:normal", None) is None
        and recorded_authorisation(tmp_path, "stub:normal", WORDS) == WORDS
    )
    write_json(tmp_path / THREAT, {"victim": "stub:normal", "authorised": WORDS})
    assert recorded_authorisation(tmp_path, "stub:normal", None) == WORDS
    assert recorded_authorisation(tmp_path, "stub:normal", "somebody else, just now") == "somebody else, just now"
    assert recorded_authorisation(tmp_path, "https://api.example.org/v1#m", None) is None


def test_the_first_sentence_says_sees_changes_spends_and_leave() -> None:
    reported = threat_model("https://x.org/v1#m", 1500, Price(0.01, 0.2, "EUR"), Permission(True, WORDS))
    assert "'https://x.org/v1#m'" in reported and reported.endswith(
        "1,500 queries (0.01 EUR each, 15.00 EUR together and 0.2 EUR for each 1,000 tokens of answers). "
        "Authorised, as the user states: Dr Ada Owner, yearly security test."
    )
    free = threat_model("stub:normal", 1, Price(), Permission(False))
    assert "may spend 1 query (without a price)." in free
    assert free.endswith("none required.")
