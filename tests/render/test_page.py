from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from cxrlab.cli.commands import COMMANDS
from cxrlab.cli.main import main
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.image_codec import encode_png
from cxrlab.core.records import Example
from cxrlab.core.runs import Run
from cxrlab.render.page import write_page
from cxrlab.render.run_folder import CONCLUSIONS

NASTY = '" onmouseover="alert(3)</p><script>alert(1)</script><img src=x onerror=alert(2)>"\'&'
FORBIDDEN = {"script", "iframe", "object", "embed", "link", "form", "base", "audio", "video", "svg"}


class Reader(HTMLParser):
    """Collects tags, attributes and text of a page; notes tags that are closed in the wrong order."""

    VOID = {"meta", "img", "br"}

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.crossed: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.crossed.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: Path) -> Reader:
    reader = Reader()
    reader.feed(page.read_text())
    return reader


def assert_self_contained(reader: Reader) -> None:
    """No script, no handler, nothing fetched: every source is data inside the file."""
    assert not reader.tags & FORBIDDEN
    assert not [name for name, _ in reader.attributes if name.startswith("on") or name in ("href", "srcset", "action")]
    assert all((value or "").startswith("data:image/") for name, value in reader.attributes if name == "src")
    assert not reader.open and not reader.crossed


def test_hostile_text_everywhere_stays_text(make_run) -> None:
    """A report, an id, a label, a reason, a setting: whatever a model or a file says is shown and never obeyed."""
    run = make_run(
        "a",
        model=f"stub:{NASTY}",
        reports={NASTY: NASTY},
        examples=(Example(NASTY, "thumbs/0.png", NASTY, (NASTY,), NASTY),),
        steps=({"id": NASTY, "does": NASTY, "seconds": NASTY},),
        summary={
            "about": NASTY,
            "model": NASTY,
            "predictions": NASTY,
            "missing": [{"id": NASTY, "reason": NASTY}],
            "check": {"ok": False, "problems": {NASTY: 1}},
            "corpus": {"name": NASTY, "counts": {NASTY: 1}, "findings": [{"observation": NASTY, "studies": NASTY}]},
            "chain": [{"part": NASTY, "purpose": NASTY, "here": NASTY}],
        },
    )
    reader = read(write_page([run], title=NASTY))
    assert_self_contained(reader)
    assert reader.text.count("<script>alert(1)</script>") > 15
    assert any("default-src 'none'" in (value or "") for name, value in reader.attributes if name == "content")


def test_reports_of_several_models_stand_side_by_side(make_run) -> None:
    example = Example("s1", "thumbs/0.png", "PA · 71 F", ("mild edema",), "Mild edema is seen.")
    first = make_run("a", "stub:normal", {"s1": "All is well."}, examples=(example,))
    second = make_run("b", "retrieval:x", {"s1": "Edema, as before."}, examples=(example,))
    page = write_page([first, second])
    reader = read(page)
    assert page == first / "page.html"
    words = ("Mild edema is seen.", "All is well.", "Edema, as before.", "mild edema", "PA · 71 F", "neighbour s9")
    assert all(reader.text.count(said) >= 1 for said in words)
    assert page.read_text().count("<article") == 1  # one study in two runs is one example
    assert_self_contained(reader)


def test_a_normal_image_says_so_and_an_unknown_one_says_nothing(make_run) -> None:
    normal = make_run("a", examples=(Example("s1", "thumbs/0.png", truth=()),))
    unknown = make_run("b", examples=(Example("s1", "thumbs/0.png", truth=None),))
    assert "no finding" in read(write_page([normal])).text
    assert "no finding" not in read(write_page([unknown])).text


def test_an_empty_report_is_shown_as_empty(make_run) -> None:
    run = make_run("a", reports={"s1": "  "}, examples=(Example("s1", "thumbs/0.png"),))
    assert "(no words)" in read(write_page([run])).text


def test_counts_findings_missing_images_and_steps_are_shown(make_run) -> None:
    sheet = encode_png(np.zeros((3, 3), np.uint8))
    summary = {
        "corpus": {
            "name": "toy",
            "counts": {"studies": 1234},
            "findings": [
                {"observation": "edema", "studies": 300, "train": 250, "test": 50},
                {"observation": "nodule", "studies": 150, "train": 140, "test": 10},
            ],
        },
        "check": {"ok": True},
        "chain": [{"part": "metrics", "purpose": "numbers", "here": False}],
    }
    tour = make_run("tour", summary=summary, steps=({"id": "draw", "seconds": 1.5, "budget_s": 9.0},), sheet=sheet)
    model = make_run("m", summary={"predictions": 7, "missing": [{"id": "s4", "reason": "cut short"}]})
    page = write_page([tour, model])
    text = read(page).text
    for said in ("1,234", "edema", "no problems", "not yet", "draw", "s4", "cut short"):
        assert said in text
    assert re.search(r"nodule</td><td>.*?width:50\.0%", page.read_text())  # half as frequent as the first
    assert page.read_text().count("<img") == 1


def test_a_run_with_predictions_alone_shows_the_first_few(make_run) -> None:
    run = make_run("a", reports={"s1": "First.", "s2": "Second."})
    assert "Second." in read(write_page([run])).text


def test_the_same_runs_give_the_same_bytes(make_run, tmp_path: Path) -> None:
    run = make_run("a", reports={"s1": "x"})
    pages = [write_page([run], tmp_path / name).read_bytes() for name in ("1.html", "2.html")]
    assert pages[0] == pages[1]


def test_bad_input_is_reported_and_nothing_is_written(make_run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one run"):
        write_page([], tmp_path / "page.html")
    run = make_run("a", examples=(Example("s1", "thumbs/0.png"),))
    (run / "thumbs/0.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match="not a PNG"):
        write_page([run], tmp_path / "page.html")
    (run / "thumbs/0.png").unlink()
    with pytest.raises(DataError, match=r"0\.png"):
        write_page([run], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


NO_RUN = {  # commands that write no run folder
    *("data ls", "data make phantom", "data make scenes", "data about", "data import", "data export", "data compose"),
    *("data structure", "data show", "models ls", "models merge", "models convert", "read", "metrics ls", "page"),
    *(
        "defend test-watermark",
        "serve",
        "serve key",
        "serve unblock",
        "completion",
        "doctor",
        "leaderboard",
        "data import table",
        "data import parquet",
        "data import dicom",
        "data card",
    ),
}


def test_every_command_is_known_to_write_a_run_or_none() -> None:
    """A new command that writes a run needs a row, so that the page can say what an unfinished one lacks."""
    assert set(COMMANDS) == CONCLUSIONS.keys() | NO_RUN and not CONCLUSIONS.keys() & NO_RUN


def stopped(folder: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, **config: object) -> Path:
    """The folder of a command that was stopped by Ctrl-C after some evidence, its last line cut."""
    monkeypatch.setattr("sys.argv", ["/usr/bin/cxrlab", *words, "--out", str(folder)])
    with pytest.raises(KeyboardInterrupt), Run.open(folder, {"model": "stub:normal", **config}) as run:
        for name in ("predictions.jsonl", "per_study.jsonl", "detection.jsonl", "history.jsonl", "steps.jsonl"):
            run.append(name, {"id": "s1", "report": "x"})
        raise KeyboardInterrupt
    with (folder / "predictions.jsonl").open("a") as stream:
        stream.write('{"id": "s2", "rep')
    return folder


@pytest.mark.parametrize("kind", CONCLUSIONS)
def test_no_interrupted_run_vanishes(make_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The page is written with the run's name, what it lacks and the command that finishes it; the command fails."""
    half = stopped(tmp_path / "half run", kind.split(), monkeypatch)
    whole = make_run("whole", reports={"s1": "x"}, summary={"predictions": 1})
    page = tmp_path / "page.html"
    with pytest.raises(RunError, match="half run"):
        write_page([whole, half], page)
    reader = read(page)
    assert_self_contained(reader)
    banner = reader.text[: reader.text.index("Generated reports")]
    assert "Unfinished runs" in banner and str(half) in banner and "stopped by Ctrl-C" in banner
    assert str(whole) not in banner and f"cxrlab {kind} --out '{half}'" in banner
    assert all(name in banner for name in CONCLUSIONS[kind])
    page.unlink()
    assert write_page([whole, half], page, allow_unfinished=True) == page
    assert "Unfinished runs" in read(page).text


@pytest.mark.parametrize("state", ["running", "finished"])
def test_a_run_that_was_killed_or_holds_nothing_is_listed(make_run, state: str) -> None:
    run = make_run("a")
    (run / "status.json").write_text(f'{{"state": "{state}"}}')
    with pytest.raises(RunError):
        write_page([run])
    assert str(run) in read(run / "page.html").text


def test_a_model_that_was_trained_and_not_measured_is_unfinished(tmp_path: Path) -> None:
    """'prefer train' measures after the run of its training has ended."""
    config = {"pairs": "p", "measure": {"n": 100}}
    with Run.open(tmp_path / "aligned", config) as run:
        run.write("summary.json", {"stage": "prefer", "steps": 20})
    with pytest.raises(RunError, match=r"preference\.json"):
        write_page([tmp_path / "aligned"])
    with Run.open(tmp_path / "plain", {**config, "measure": {"n": 0}}) as run:
        run.write("summary.json", {"stage": "prefer", "steps": 20})
    assert "Unfinished" not in read(write_page([tmp_path / "plain"])).text


def test_a_run_without_a_section_of_its_own_shows_its_summary(tmp_path: Path) -> None:
    with Run.open(tmp_path / "tuned", {"start": "x"}) as run:
        run.write("summary.json", {"stage": "finetune", "steps": 421})
    text = read(write_page([tmp_path / "tuned"])).text
    assert "Other runs" in text and str(tmp_path / "tuned") in text and "421" in text


def test_a_broken_line_of_a_finished_run_is_still_refused(make_run) -> None:
    run = make_run("a", reports={"s1": "x"})
    with (run / "predictions.jsonl").open("a") as stream:
        stream.write('{"id": "s2", "rep')
    with pytest.raises(DataError, match="not valid JSON"):
        write_page([run])


def test_the_command_exits_1_unless_unfinished_runs_are_allowed(
    make_run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = stopped(tmp_path / "half", ["detect"], monkeypatch)
    words = ["page", str(half), "--out", str(tmp_path / "page.html")]
    assert main(words) == 1 and (tmp_path / "page.html").is_file()
    assert str(half) in capsys.readouterr().err
    assert main([*words, "--allow-unfinished"]) == 0


@pytest.mark.browser
def test_a_browser_shows_hostile_text_and_runs_none_of_it(make_run, tmp_path: Path) -> None:
    """What a real browser makes of the page: the title, were the script to run, would be another."""
    browser = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
    )
    if not browser:
        pytest.skip("only Firefox is here, which cannot print a page's tree")
    evil = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    page = write_page([make_run("a", reports={"s1": evil})], tmp_path / "page.html", title="safe")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom")
    shown = subprocess.run([browser, *flags, page.as_uri()], capture_output=True, text=True, timeout=60, check=False)
    assert "<title>safe</title>" in shown.stdout and "&lt;script&gt;" in shown.stdout
