from __future__ import annotations

import errno
import io
from collections.abc import Iterable, Iterator

import pytest

from cxrlab.core import terminal
from cxrlab.core.terminal import track


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_items_pass_through_in_order_and_a_short_loop_is_silent() -> None:
    out = io.StringIO()
    assert list(track([3, 1, 2], "sorting", stream=out)) == [3, 1, 2]
    assert out.getvalue() == ""


def test_plain_lines_state_count_share_and_end() -> None:
    out = io.StringIO()
    assert list(track(range(4), "counting", stream=out, every_s=0.0)) == [0, 1, 2, 3]
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("counting: 1 of 4 (25 %)") and lines[-1].startswith("counting: 4 of 4 (100 %)")


def test_a_total_that_is_unknown_gives_a_count_alone() -> None:
    out = io.StringIO()
    list(track(iter("ab"), "reading", stream=out, every_s=0.0))
    assert out.getvalue().splitlines()[-1].startswith("reading: 2, 0 s")


def test_an_error_passes_and_the_last_line_says_how_far_it_came() -> None:
    out = io.StringIO()

    def items() -> object:
        yield 1
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        list(track(items(), "reading", stream=out, every_s=0.0))  # type: ignore[arg-type]
    assert out.getvalue().splitlines()[-1].startswith("reading: 1,")


def test_a_bar_on_a_terminal_shows_label_and_count_and_closes_on_an_error() -> None:
    out = Terminal()
    assert list(track(range(3), "drawing", stream=out)) == [0, 1, 2]
    assert "drawing" in out.getvalue() and "3/3" in out.getvalue()
    with pytest.raises(RuntimeError):
        for _ in track(range(3), "drawing", stream=Terminal()):
            raise RuntimeError


class Dead(io.StringIO):
    """A stream whose reader has gone; as a terminal it takes a few pieces first."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal, self.left = terminal, 3

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        return len(text)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_work_goes_on_when_nobody_watches(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    out = Dead(terminal)
    assert list(track(range(5), "drawing", stream=out, every_s=0.0)) == [0, 1, 2, 3, 4]
    assert out.left < 0 and capsys.readouterr().err == ""


def test_a_process_without_an_error_stream_works_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal.sys, "stderr", None)
    assert list(track(range(3), "drawing", every_s=0.0)) == [0, 1, 2]


def test_quiet_by_argument_and_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    list(track(range(3), "x", quiet=True, stream=out, every_s=0.0))
    monkeypatch.setenv("CXRLAB_QUIET", "1")
    list(track(range(3), "x", stream=out, every_s=0.0))
    assert out.getvalue() == ""
    monkeypatch.setenv("CXRLAB_QUIET", "0")
    list(track(range(3), "x", stream=out, every_s=0.0))
    assert out.getvalue() != ""


class Clock:
    """Ten seconds pass whenever somebody works, unless set otherwise."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def work(self, items: Iterable[int], seconds: float) -> Iterator[int]:
        for item in items:
            yield item
            self.now += seconds


def test_at_most_one_line_every_ten_seconds() -> None:
    """A thousand studies of a second each: a line every ten, and none sooner at the end."""
    out, clock = io.StringIO(), Clock()
    for _ in clock.work(track(range(1005), "writing", stream=out, clock=clock), 1.0):
        pass
    lines = out.getvalue().splitlines()
    assert len(lines) == 100 and lines[0].startswith("writing: 10 of 1,005 (1 %), 10 s")


@pytest.mark.parametrize(("seconds", "rate"), [(50.0, "50.0 s each"), (0.1, "10.0 per second")])
def test_a_rate_is_readable_for_slow_and_fast_items(seconds: float, rate: str) -> None:
    """Not 0.0 per second of a model that takes most of a minute per study."""
    out, clock = io.StringIO(), Clock()
    for _ in clock.work(track(range(400), "writing", stream=out, clock=clock), seconds):
        pass
    assert out.getvalue().splitlines()[0].endswith(rate)


def test_loops_within_and_after_one_another_share_the_ten_seconds() -> None:
    """Twenty loops of three seconds: six lines in a minute, not one a loop."""
    out, clock = io.StringIO(), Clock()
    for outer in track(range(20), "rounds", stream=out, clock=clock):
        for _ in clock.work(track(range(3), f"round {outer}", stream=out, clock=clock), 1.0):
            pass
    assert clock.now == 160.0 and 4 <= len(out.getvalue().splitlines()) <= 6


def test_what_is_counted_are_studies_and_not_batches() -> None:
    out, clock = io.StringIO(), Clock()
    batches = [[1, 2, 3], [4, 5, 6], [7]]
    for _ in clock.work(track(batches, "writing", 7, size=len, stream=out, clock=clock), 20.0):  # type: ignore[arg-type]
        pass
    assert [line.split(",")[0] for line in out.getvalue().splitlines()] == [
        "writing: 3 of 7 (43 %)",
        "writing: 6 of 7 (86 %)",
        "writing: 7 of 7 (100 %)",
    ]
    shown = Terminal()
    assert list(track(batches, "writing", 7, size=len, stream=shown)) == batches
    assert "7/7" in shown.getvalue() and "3/3" not in shown.getvalue()


@pytest.mark.parametrize("total", [0, None])
@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_loop_over_nothing_shows_nothing(kind: type[io.StringIO], total: int | None) -> None:
    """No bar of 0/0, also where the number is not known beforehand."""
    out = kind()
    assert list(track(iter(()), "asking judges", total, stream=out, every_s=0.0)) == []
    assert list(track([], "asking judges", stream=out, every_s=0.0)) == [] and out.getvalue() == ""
