"""Pseudonyms: the same for the same with one key, different with another, and never the original."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cxrlab.core.errors import RunError
from cxrlab.data.deidentify_image import KEY, Pseudonyms, pseudonyms_in

ONE, OTHER = Pseudonyms(b"1" * 32), Pseudonyms(b"2" * 32)


def test_consistent_within_a_key_and_not_across() -> None:
    """What belongs together stays together; without the key nobody can tell by trying numbers."""
    assert ONE.uid("1.2.3") == ONE.uid("1.2.3") != ONE.uid("1.2.4")
    assert ONE.uid("1.2.3") != OTHER.uid("1.2.3") and ONE.patient("77") != OTHER.patient("77")


def test_a_uid_is_valid() -> None:
    """At most 64 characters, digits and points, of the branch that anybody may use."""
    uid = ONE.uid("1.2.840.113619." + "9" * 48)
    assert uid.startswith("2.25.") and len(uid) <= 64 and uid.replace(".", "").isdigit()


def test_identifiers_in_a_path_are_replaced() -> None:
    """Wherever they stand; short ones would hit by chance and are left."""
    path = ONE.path("MEIER/1.2.3.44/img_1.dcm", ("MEIER", "1.2.3.44", "1"))
    assert "MEIER" not in path and "1.2.3.44" not in path and path.endswith("/img_1.dcm") and path.count("/") == 2


def test_capitals_and_short_names_do_not_hide() -> None:
    """Small letters are the same name; a short one is replaced where it stands alone; files stay apart."""
    path = ONE.path("kim/Kimono_meier.dcm", ("MEIER", "KIM"))
    assert "meier" not in path and not path.startswith("kim") and "/Kimono_" in path
    assert ONE.path("meier.dcm", ("MEIER",)) != ONE.path("MEIER.dcm", ("MEIER",))
    assert ONE.path("a.dcm", ()) == "a.dcm"


def test_the_key_is_kept_private_and_used_again(tmp_path: Path) -> None:
    """A run that is continued gives the same names; only the user may read the key."""
    first = pseudonyms_in(tmp_path)
    assert pseudonyms_in(tmp_path) == first and len(first.key) == 32
    assert stat.S_IMODE((tmp_path / KEY).stat().st_mode) == 0o600


def test_a_damaged_key_is_refused(tmp_path: Path) -> None:
    """A new key in its place would give one patient two names."""
    (tmp_path / KEY).write_text("not a key")
    with pytest.raises(RunError, match="not a key"):
        pseudonyms_in(tmp_path)
