from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from cxrlab.cli.main import main


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXRLAB_QUIET", "1")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one tiny corpus of each maker."""
    folder = tmp_path_factory.mktemp("corpora")
    small = ["--n", "6", "--size", "64", "--workers", "1", "--quiet"]
    assert main(["data", "make", "phantom", *small, "--out", str(folder / "phantom")]) == 0
    assert main(["data", "make", "scenes", *small, "--out", str(folder / "scenes")]) == 0
    return folder


def digest(folder: Path) -> dict[str, str]:
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.parametrize("maker", ["phantom", "scenes"])
def test_the_same_settings_give_the_same_bytes(
    corpora: Path, tmp_path: Path, maker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice the same command, in two folders; flags and a file say the same thing."""
    (tmp_path / "c.yaml").write_text("n: 6\nsize: 64\nworkers: 1\n")
    words = ["data", "make", maker, "--config", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "again"), "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["studies"] == 6
    assert digest(tmp_path / "again") == digest(corpora / maker)


def test_making_over_another_corpus_is_refused(corpora: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = digest(corpora / "phantom")
    assert main(["data", "make", "phantom", "--n", "7", "--size", "64", "--out", str(corpora / "phantom")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert digest(corpora / "phantom") == before


def test_ls_lists_makers_and_corpora(corpora: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "ls"]) == 0
    assert "phantom" in capsys.readouterr().out
    assert main(["data", "ls", str(corpora), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [Path(item["path"]).name for item in found["corpora"]] == ["phantom", "scenes"]
    assert main(["data", "ls", str(corpora)]) == 0
    assert "6 studies" in capsys.readouterr().out


def test_ls_lists_a_broken_corpus_with_its_defect_beside_the_others(
    corpora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("good", "bad", "worse"):
        shutil.copytree(corpora / "scenes", tmp_path / name)
    (tmp_path / "bad" / "card.yaml").write_text("name: [\n")
    (tmp_path / "worse" / "studies.jsonl").unlink()
    assert main(["data", "ls", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "6 studies" in out and "broken" in out and "card.yaml:2 is not valid YAML" in out
    assert main(["data", "ls", str(tmp_path), "--json"]) == 0
    found = {Path(item["path"]).name: item for item in json.loads(capsys.readouterr().out)["corpora"]}
    assert found["good"]["card"]["counts"]["studies"] == 6 and "problem" not in found["good"]
    assert "not valid YAML" in found["bad"]["problem"] and "studies.jsonl" in found["worse"]["problem"]


def test_ls_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "ls", str(tmp_path)]) == 0
    assert "no complete corpus" in capsys.readouterr().out
    assert main(["data", "ls", str(tmp_path / "none")]) == 1
    assert "does not exist" in capsys.readouterr().err
    (tmp_path / "f").write_text("")
    assert main(["data", "ls", str(tmp_path / "f")]) == 1
    assert "is a file" in capsys.readouterr().err


def test_show_writes_a_picture(corpora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sheet = tmp_path / "sheet.png"
    assert main(["data", "show", str(corpora / "phantom"), "--n", "2", "--size", "64", "--out", str(sheet)]) == 0
    assert sheet.read_bytes().startswith(b"\x89PNG") and str(sheet) in capsys.readouterr().out


def test_check_passes_a_sound_corpus_and_fails_a_broken_one(corpora: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", str(corpora / "scenes"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    picture = next((corpora / "scenes" / "images").rglob("*.png"))
    whole = picture.read_bytes()
    try:
        picture.write_bytes(whole[:50])
        assert main(["data", "check", str(corpora / "scenes")]) == 1
        assert picture.name in capsys.readouterr().out
    finally:
        picture.write_bytes(whole)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["make", "phantom", "--n", "0", "--out", "x"], "n=0"),
        (["make", "phantom", "--preset", "standart", "--out", "x"], "Did you mean 'standard'"),
        (["make", "phantom"], "--out is missing"),
        (["show", "nowhere", "--out", "x.png"], "nowhere does not exist"),
        (["check", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["data", *words]) == 1
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and list(tmp_path.iterdir()) == []


def test_import_states_what_was_kept_and_what_was_odd(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nine of the twelve rows are studies; a second run says that it did nothing."""
    root = Path(__file__).parents[1] / "data" / "sources" / "fixtures" / "brax"
    words = ["data", "import", "brax", "--root", str(root), "--out", str(tmp_path / "c"), "--workers", "1"]
    assert main(words) == 0
    reported = capsys.readouterr().out
    assert "9 studies, 6 patients, 0 images (layout: png)" in reported and "1  row without a patient id" in reported
    assert "9  image listed, but not in the folder" in reported and "complete before" not in reported
    assert main(words) == 0
    assert "complete before and is unchanged" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"studies": 9, "patients": 6, "images": 0}
