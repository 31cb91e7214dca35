from __future__ import annotations

import pytest
from tables import every_row

from cxrlab.core.egress import Address, hide_credentials, is_address, is_loopback, parse_address
from cxrlab.core.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "expected", "url"),
    [
        (
            "http://127.0.0.1:8000/v1#m",
            Address("http://127.0.0.1:8000/v1", "", "m"),
            "http://127.0.0.1:8000/v1/chat/completions",
        ),
        ("HTTPS://Host/v1/#a:b/c#d", Address("https://Host/v1", "", "a:b/c#d"), "https://Host/v1/chat/completions"),
        (
            "https://h/openai/deployments/d/chat/completions?api-version=2026-06-01#gpt",
            Address("https://h/openai/deployments/d", "api-version=2026-06-01", "gpt"),
            "https://h/openai/deployments/d/chat/completions?api-version=2026-06-01",
        ),
        ("  http://[::1]:1/v1# m ", Address("http://[::1]:1/v1", "", "m"), "http://[::1]:1/v1/chat/completions"),
        ("http://h#m", Address("http://h", "", "m"), "http://h/chat/completions"),
    ],
)
def test_an_address_has_a_base_a_query_and_a_model(name: str, expected: Address, url: str) -> None:
    assert is_address(name) and parse_address(name) == expected
    assert expected.url("chat/completions") == url


@every_row(
    ("name", "says"),
    [
        ("http://h/v1", "names no model"),
        ("http://h/v1#", "names no model"),
        ("http://h/v1#  ", "names no model"),
        ("http:///v1#m", "is not the address of a model"),
        ("http://h:port/v1#m", "is not the address of a model"),
        ("http://h:0/v1#m", "is not the address of a model"),
        ("http://h:99999/v1#m", "is not the address of a model"),
        ("http://[::1/v1#m", "is not the address of a model"),
        ("ftp://h/v1#m", "is not the address of a model"),
        ("hf:folder", "is not the address of a model"),
        ("http://h\\@evil/v1#m", "login or a backslash"),
        ("http://h\\v1#m", "login or a backslash"),
    ],
)
def test_what_is_no_address_is_reported(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_address(name)


def test_a_login_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="give the address alone and the key in the environment") as error:
        parse_address("https://me:hidden@h/v1#m")
    assert "hidden" not in str(error.value) and "https://***@h/v1#m" in str(error.value)
    assert hide_credentials("https://me@b:hidden@h/v1#m") == "https://***@h/v1#m"
    assert hide_credentials("hf:folder") == "hf:folder"
    with pytest.raises(ConfigError) as error:  # also where the rest is wrong
        parse_address("https://me:hidden@h:port/v1#m")
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize("key", ["key", "api-key", "access_token", "code", "sig", "API_KEY"])
def test_a_key_in_an_address_is_refused_and_not_repeated(key: str) -> None:
    """A name is written into settings, predictions and pages, and so would be the key."""
    with pytest.raises(ConfigError, match="contains a key") as error:
        parse_address(f"https://h/v1?api-version=2026-06-01&{key}=hidden#m")
    assert "hidden" not in str(error.value) and f"{key}=***#m" in str(error.value)
    assert hide_credentials(f"https://h/v1?{key}=hidden&a=b#m") == f"https://h/v1?{key}=***&a=b#m"


@pytest.mark.parametrize(
    "name",
    [
        "http://127.0.0.1:8000/v1#m",
        "http://localhost/v1#m",
        "https://LOCALHOST:1#m",
        "http://127.9.9.9#m",
        "http://[::1]#m",
    ],
)
def test_this_machine_is_known_by_its_addresses(name: str) -> None:
    assert is_loopback(name)


@every_row(
    "name",
    [
        "http://192.0.2.1/v1#m",
        "http://10.0.0.1/v1#m",
        "http://0.0.0.0/v1#m",
        "http://localhost.example/v1#m",
        "http://127.0.0.1.example/v1#m",
        "http://127.0.0.1@evil.example/v1#m",
        "http://evil.example\\@127.0.0.1/v1#m",
        "http://evil.example/@127.0.0.1#m",
        "http://127.0.0.1\t.evil.example/v1#m",
        "http://127.1/v1#m",  # some programs take it for 127.0.0.1; what is not plain is not trusted
        "http://0x7f000001/v1#m",
        "http://2130706433/v1#m",
        "http://①②⑦.0.0.1/v1#m",
        "http://[::1/v1#m",
        "http://[::1]evil.example/v1#m",
        "http://127.0.0.1:80:90/v1#m",
        "http:127.0.0.1#m",
        "hf:localhost",
        "",
    ],
)
def test_whatever_could_lead_elsewhere_does_not_count_as_this_machine(name: str) -> None:
    assert not is_loopback(name)
