from __future__ import annotations

from pathlib import Path

import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.extraction.defence.watermark import VARIABLE, fingerprint_of, load_key


def test_a_key_comes_from_its_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"sixteen bytes ok\n")
    assert load_key(file) == b"sixteen bytes ok"
    monkeypatch.setenv(VARIABLE, "another key of enough bytes")
    assert load_key(None) == b"another key of enough bytes"
    assert fingerprint_of(load_key(file)) != fingerprint_of(load_key(None))


def test_no_key_and_a_short_one_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ConfigError, match="holds no key; give key_file"):
        load_key(None)
    (tmp_path / "key").write_text("tiny!")
    with pytest.raises(ConfigError, match="has only 5 bytes") as caught:
        load_key(tmp_path / "key")
    assert "tiny!" not in str(caught.value)
