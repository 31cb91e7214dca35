"""A conversion is whole or nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from published_checkpoints import open_clip_folder

from cxrlab.core.errors import ConfigError, CxrlabError, DataError, RunError
from cxrlab.models.convert import ConvertConfig, convert, whole_folder


def test_the_folder_appears_when_all_is_written(tmp_path: Path) -> None:
    """Until then nobody sees it; an empty folder of that name is taken over."""
    out = tmp_path / "out"
    out.mkdir()
    with whole_folder(out) as part:
        (part / "config.json").write_text("{}")
        assert not any(out.iterdir())
    assert (out / "config.json").read_text() == "{}" and list(tmp_path.iterdir()) == [out]


def test_nothing_is_left_of_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "deep" / "out") as part:
        (part / "config.json").write_text("{}")
        raise ZeroDivisionError
    assert list((tmp_path / "deep").iterdir()) == []


def test_a_killed_conversion_leaves_no_folder_and_the_next_one_starts_anew(tmp_path: Path) -> None:
    """Killed in the middle of writing: `out` is not there, and what lies beside it is cleared by the next."""
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom cxrlab.models.convert import whole_folder\n"
        "with whole_folder(Path(sys.argv[1])) as part:\n"
        "    (part / 'half').write_text('x')\n    print('ready', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "out")], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        with pytest.raises(RunError, match="another process"), whole_folder(tmp_path / "out"):
            pass
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert not (tmp_path / "out").exists() and any(tmp_path.iterdir())
    with whole_folder(tmp_path / "out") as part:
        (part / "whole").write_text("y")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["checksums.json", "whole"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x")
    with pytest.raises(ConfigError, match="already exists"):
        convert("open-clip", tmp_path, ConvertConfig(), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may write anywhere")
def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(RunError, match="permission"), whole_folder(tmp_path / "out"):
            pass
    finally:
        tmp_path.chmod(0o700)


def test_names_are_checked_first(tmp_path: Path) -> None:
    with pytest.raises(CxrlabError, match="Did you mean 'open-clip'"):
        convert("openclip", tmp_path, ConvertConfig(), tmp_path / "out")
    with pytest.raises(DataError, match="is not a folder"):
        convert("open-clip", tmp_path / "none", ConvertConfig(), tmp_path / "out")


def test_the_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    """Nothing is drawn at random, so two conversions can be compared file by file."""
    source = open_clip_folder(tmp_path / "in")
    for name in ("one", "two"):
        convert("open-clip", source, ConvertConfig(), tmp_path / name)
        time.sleep(0.01)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "two").iterdir()) and "model.safetensors" in files
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    assert json.loads((tmp_path / "one" / "config.json").read_text())["model_type"] == "projected-dual-encoder"
