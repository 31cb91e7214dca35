from __future__ import annotations

import errno
import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from cxrlab.cli import main as room
from cxrlab.cli.arguments import CommandLine
from cxrlab.cli.commands import Command
from cxrlab.cli.main import main
from cxrlab.cli.output import Result, columns, present
from cxrlab.core import terminal
from cxrlab.core.errors import DataError
from cxrlab.core.records import Prediction


@dataclass(frozen=True)
class Size:
    """Size.

    Args:
        width: In pixels.
        max_height: In pixels.
        masks: With masks.
        names: Which ones, of `width` letters.
    """

    width: int = 8
    max_height: float = 2.0
    masks: bool = True
    names: tuple[str, ...] = ("a", "b")


def draw(images: list[Path], config: Size, out: Path, *, fast: bool = False) -> Result:
    """Draw images.

    Slowly.

    Args:
        images: What to draw.
        config: Settings.
        out: Where to.
        fast: Hurry, 100 % of the time.
    """
    return Result(f"drew {len(images)}", {"images": images, "config": config, "out": out, "fast": fast})


def loop() -> None:
    """Go through a few items."""
    for _ in terminal.track(range(3), "looping"):
        pass


def fail(kind: str, seed: int = 0) -> None:
    """Fail as asked.

    Args:
        kind: How.
        seed: For chance.
    """
    raise {
        "data": DataError("s.jsonl:3 is wrong; mend it."),
        "memory": MemoryError(),
        "disk": OSError(errno.ENOSPC, "No space left on device", "/data/x"),
        "extra": ModuleNotFoundError("No module named 'torch'", name="torch"),
        "module": ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow"),
        "bug": RuntimeError("a defect"),
        "stop": KeyboardInterrupt(),
    }[kind]


def checked(folder: Path | None = None) -> Result:
    """Check.

    Args:
        folder: Where.
    """
    return Result("1 problem", {"folder": folder}, ok=False)


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        room,
        "COMMANDS",
        {
            "art draw": Command("draw images", f"{__name__}:draw", "cxrlab art draw a.png --out b", ("images",)),
            "art check": Command("check", f"{__name__}:checked", "cxrlab art check", ("folder",)),
            "loop": Command("loop", f"{__name__}:loop", "cxrlab loop"),
            "fail": Command("fail", f"{__name__}:fail", "cxrlab fail data", ("kind",)),
        },
    )
    monkeypatch.delenv("CXRLAB_QUIET", raising=False)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_flags_reach_the_function(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "art",
        "draw",
        "a.png",
        "b.png",
        "--out",
        "o",
        "--max_height=3",
        "--no-masks",
        "--names",
        "x,y",
        "--fast",
        "--json",
    ]
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert json.loads(out) == {
        "images": ["a.png", "b.png"],
        "config": {"width": 8, "max_height": 3.0, "masks": False, "names": ["x", "y"]},
        "out": "o",
        "fast": True,
    }


def test_a_list_flag_given_twice_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    """The first of two gates must not be lost without a word."""
    code, out, _ = run(capsys, "art", "draw", "a.png", "--out", "o", "--names", "x,y", "--names", "z", "--json")
    assert code == 0 and json.loads(out)["config"]["names"] == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("words", "masks"), [(["--masks"], True), (["--masks=false"], False), (["--no-masks=false"], True)]
)
def test_switches_in_all_their_spellings(capsys: pytest.CaptureFixture[str], words: list[str], masks: bool) -> None:
    code, out, err = run(capsys, "art", "draw", *words, "a.png", "--out", "o", "--json")
    if words == ["--no-masks=false"]:
        assert code == 1 and "--no-masks" in err
    else:
        assert json.loads(out)["config"]["masks"] is masks


def test_a_config_file_and_a_flag_over_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("width: 16\nmasks: false\n")
    words = ["art", "draw", "a", "--out", "o", "--config", str(tmp_path / "c.yaml"), "--width", "32", "--json"]
    config = json.loads(run(capsys, *words)[1])["config"]
    assert config["width"] == 32 and config["masks"] is False


def test_text_for_people_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "art", "draw", "a", "--out", "o") == (0, "drew 1\n", "")


def test_a_failed_check_exits_1_with_its_result_on_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "art", "check") == (1, "1 problem\n", "")


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "art", "draw", "--help")
    assert code == 0
    for part in (
        "usage: cxrlab art draw IMAGE… --out PATH [flags]",
        "Draw images.\n\nSlowly.",
        "In pixels. (default: 8)",
        "--masks, --no-masks",
        "of --width letters",
        "(default: a,b)",
        "100 % of the time",
        "accepted by every command",
        "example:\n  cxrlab art draw a.png --out b",
    ):
        assert part in out


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_the_overview_lists_every_command(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, out, _ = run(capsys, *words)
    assert code == 0 and "art draw   draw images" in out and "  fail" in out


@pytest.mark.parametrize("words", [["art", "--help"], ["help", "art"]])
def test_the_overview_of_a_group(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, out, _ = run(capsys, *words)
    assert code == 0 and "art check" in out and "\n  fail" not in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["atr"], "there is no command 'atr'. Did you mean 'art'? Choose one of: art, loop, fail."),
        (["--verbose"], "there is no command '--verbose'. Choose one of: art, loop, fail."),
        (["art"], "'art' is a group of commands. Choose one of: check, draw."),
        (["art", "drow"], "'art' has no command 'drow'. Did you mean 'draw'? Choose one of: check, draw."),
        (["art", "draw", "a", "--out", "o", "--widht", "3"], "has no flag --widht. Did you mean '--width'"),
        (["art", "draw", "a", "--out"], "argument --out: expected one argument; see 'cxrlab art draw --help'."),
        (["art", "draw", "--out", "o"], "IMAGE… is missing; for example: cxrlab art draw a.png --out b."),
        (["art", "draw", "a"], "--out is missing; for example:"),
        (["art", "check", "a", "b"], "unexpected argument 'b'"),
        (["art", "draw", "a", "--out", "o", "--width", "x"], "width is 'x'; it must be a whole number."),
        (
            ["art", "draw", "a", "--out", "o", "--masks=maybe"],
            "--masks is 'maybe'; it must be one of true, false, yes, no, or write --masks or --no-masks alone.",
        ),
        (["art", "draw", "a", "--out", "o", "--no-masks=no"], "--no-masks takes no value, not 'no'; write --no-masks"),
        (["art", "draw", "a", "--out", "o", "--json=1"], "--json takes no value, not '1'; write --json alone."),
        (["art", "draw", "a", "--out", "o", "--max-height", "1e999"], "--max-height is '1e999'; it must be finite"),
        (["fail", "data", "--seed", "x"], "--seed is 'x'; it must be a whole number."),
    ],
)
def test_a_slip_is_answered_in_one_sentence(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    code, out, err = run(capsys, *words)
    assert code == 1 and out == "" and said in err
    assert err.startswith("cxrlab: ") and err.count("\n") == 1 and "Traceback" not in err


def test_several_slips_are_reported_together(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, "art", "draw", "--width", "x", "--max-height", "y")
    assert "4 problems with the settings:" in err and "IMAGE… is missing" in err and "--out is missing" in err
    assert "width is 'x'" in err and "--max-height is 'y'" in err


def test_words_after_two_dashes_are_no_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(run(capsys, "art", "draw", "--out", "o", "--json", "--", "--odd")[1])["images"] == ["--odd"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("data", "s.jsonl:3 is wrong; mend it."),
        ("memory", "memory ran out"),
        ("disk", "/data/x: the disk is full"),
        ("extra", 'pip install ".[models]" (in the folder of cxrlab)'),
    ],
)
def test_what_a_user_can_mend_is_one_sentence_and_exit_1(
    capsys: pytest.CaptureFixture[str], kind: str, said: str
) -> None:
    code, out, err = run(capsys, "fail", kind)
    assert code == 1 and out == "" and said in err and err.count("\n") == 1


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(DataError):
        main(["fail", "data", "--debug"])
    with pytest.raises(KeyboardInterrupt):
        main(["fail", "stop", "--debug"])


@pytest.mark.parametrize(("kind", "error"), [("bug", RuntimeError), ("module", ModuleNotFoundError)])
def test_a_defect_keeps_its_traceback(kind: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        main(["fail", kind])


def test_ctrl_c_exits_130(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "fail", "stop")
    assert code == 130 and "kept" in err


def test_quiet_silences_progress_below(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag holds for this one command, not for the process."""
    monkeypatch.setattr(terminal, "_lines", lambda items, *_: pytest.fail("progress was shown"))
    assert run(capsys, "loop", "--quiet")[0] == 0
    monkeypatch.undo()
    shown = io.StringIO()
    assert list(terminal.track([1], "looping", stream=shown, every_s=0.0)) == [1]
    assert "looping" in shown.getvalue()


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, "cxrlab 0.1.0\n", "")


@pytest.mark.parametrize(
    ("value", "text", "data"),
    [
        (Path("a/b"), "a/b", {"path": "a/b"}),
        ({"a": 1, "long": 2}, "a     1\nlong  2", {"a": 1, "long": 2}),
        ([("x", "why")], "x  why", [["x", "why"]]),
        (["x", "y"], "x\ny", ["x", "y"]),
        ([{"name": "n", "help": "h"}], "n  h", [{"name": "n", "help": "h"}]),
        (Prediction("s", "clear"), "id      s\nreport  clear", {"id": "s", "report": "clear"}),
        (3, "3", 3),
    ],
)
def test_plain_answers_of_functions_are_shown(value: object, text: str, data: object) -> None:
    """A function need not know that a command line exists."""
    assert present(value) == Result(text, data)


def test_nothing_is_shown_for_nothing() -> None:
    assert present(None) is None and columns([]) == "" and columns([("a", None)]) == "a"


@pytest.mark.parametrize("function", ["two_configs", "same_names"])
def test_a_function_whose_flags_would_clash_is_a_defect(function: str) -> None:
    with pytest.raises(TypeError):
        CommandLine("x", Command("x", "a:b", "cxrlab x"), globals()[function])


def two_configs(config: Size, other: Size) -> None:
    """Two groups of flags of the same names."""


def same_names(config: Size, width: int = 3) -> None:
    """A flag of its own that the config has too."""
