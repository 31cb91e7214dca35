from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys

import pytest

from cxrlab.core import terminal
from cxrlab.core.errors import RunError
from cxrlab.core.terminal import NoticeStream, print_result, terminal_safe


class Dead(io.StringIO):
    """A stream whose other end has gone."""

    def __init__(self, number: int = errno.EPIPE) -> None:
        super().__init__()
        self.number, self.tried = number, 0

    def write(self, text: str) -> int:
        self.tried += 1
        raise OSError(self.number, os.strerror(self.number))


def ascii_stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")


def written(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def test_colours_lines_and_words_stay_and_orders_to_the_terminal_go() -> None:
    kept = "\x1b[1;31mred\x1b[0m\tß 🫁\nnext"
    assert terminal_safe(kept, colours=True) == kept and terminal_safe(kept) == kept.replace("\x1b", "\ufffd")
    for order in ("\x1b[2J", "\x1b]0;title\x07", "\x1bc", "\x9b2J", "\r", "\x00", "\u202e", "\u2066"):
        for colours in (True, False):
            shown = terminal_safe(f"a{order}b", colours=colours)
            assert not set(shown) & set("\x1b\x07\x9b\r\x00\u202e\u2066")


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO])
def test_a_remark_that_nobody_can_read_is_dropped(number: int) -> None:
    stream = Dead(number)
    assert NoticeStream(stream).write("hello") == 5 and stream.tried == 1


def test_a_remark_needs_no_stream_at_all() -> None:
    """A process without an error stream has None, a daemon may have closed it."""
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        remarks = NoticeStream(stream)
        assert remarks.write("x") == 1 and not remarks.isatty()
        remarks.flush()


def test_the_rest_of_a_stream_shows_through() -> None:
    assert NoticeStream(ascii_stream()).encoding == "ascii"


def test_the_result_is_a_line_on_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    print_result("hello")
    assert capsys.readouterr().out == "hello\n"


def test_a_reader_that_has_gone_is_met_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Dead()
    monkeypatch.setattr(terminal.sys, "stdout", gone)
    print_result("hello")
    assert gone.tried
    monkeypatch.setattr(terminal.sys, "stdout", None)
    print_result("hello")


def test_a_result_that_the_disk_does_not_take_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal.sys, "stdout", Dead(errno.ENOSPC))
    with pytest.raises(RunError, match="cannot write the output: the disk is full"):
        print_result("hello")


@pytest.mark.parametrize("text", ["naïve … 𝛼", "half \udcff of a character"])
def test_what_an_encoding_lacks_is_escaped_as_json_does(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The output of --json must stay JSON, also on a terminal of the last century."""
    stream = ascii_stream()
    monkeypatch.setattr(terminal.sys, "stdout", stream)
    print_result(json.dumps({"a": text}, ensure_ascii=False))
    assert json.loads(written(stream)) == {"a": text}


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("NoticeStream(sys.stderr).write('x')", "stderr"),
        ("print_result('x')", "stdout"),
    ],
)
def test_a_dead_pipe_does_not_change_the_exit_code(code: str, left: str) -> None:
    """The interpreter flushes both streams at its exit and gives 120 where that fails."""
    reader, writer = os.pipe()
    os.close(reader)
    script = f"import sys; from cxrlab.core.terminal import NoticeStream, print_result; {code}; sys.exit(7)"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, left: writer}
    # With PYTHONUNBUFFERED nothing is left for the exit, and the fault could not show.
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    answer = subprocess.run([sys.executable, "-c", script], **pipes, env=buffered, check=False)  # type: ignore[call-overload]
    os.close(writer)
    assert answer.returncode == 7 and not answer.stderr and not answer.stdout
