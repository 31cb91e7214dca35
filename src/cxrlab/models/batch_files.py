"""Files of batch endpoints (OpenAI's batch JSONL): requests to send elsewhere, and the answers that come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import os_error, unreadable
from cxrlab.core.jsonl import JsonlAppender, line_of, parse_line, read_line, scan_jsonl
from cxrlab.core.model_interfaces import Generated, TextRequest
from cxrlab.models.http_client import EndpointError
from cxrlab.models.http_models import HttpTextModel

# Limits of one file at OpenAI, with room to spare in bytes.
MOST_LINES, MOST_BYTES = 50_000, 190_000_000


class BatchAnswers:
    """Answers in output files of a batch endpoint, found by their `custom_id`; only their places are kept in memory.

    Attributes:
        failures: Why the line of a request holds no answer (status and code), by key.
    """

    def __init__(self, files: Sequence[Path], model: HttpTextModel) -> None:
        self.failures: dict[str, str] = {}
        self._files, self._model = tuple(files), model
        self._places: dict[str, tuple[int, int]] = {}
        for number, file in enumerate(self._files):
            for offset, _, line in scan_jsonl(file):
                key, response = line.get("custom_id"), line.get("response")
                answered = isinstance(response, dict) and response.get("status_code") == 200
                # An answer takes precedence over failed lines of its request.
                if isinstance(key, str) and (answered or key not in self._places):
                    self._places[key] = (number, offset)

    def get(self, key: str, request: TextRequest) -> Generated | None:
        """The answer to the request that was written under a key; None if there is none."""
        if key not in self._places:
            return None
        number, offset = self._places[key]
        file = self._files[number]
        try:
            with file.open("rb") as stream:
                stream.seek(offset)
                line, _ = read_line(stream)
        except OSError as error:
            raise unreadable(error, file) from error
        try:
            return self._model.answer_in_batch(parse_line(line, str(file)), request)
        except EndpointError as error:
            self.failures[key] = " ".join(str(part) for part in (error.status or "not sent", error.code) if part)
            return None

    def problems(self, known: Collection[str]) -> str:
        """What is wrong with the answers, as lines of text; `known` are the keys of requests that have one.

        Raises:
            DataError: If no line belongs to a request of this run.
        """
        unknown = len(self._places.keys() - known - self.failures.keys())
        if self._places and unknown == len(self._places):
            raise DataError(
                f"none of the {unknown:,} lines of --read-answers belongs to a request of this run; give the corpus and "
                "the --model, --prompt, --max-tokens and --seed with which the requests were written."
            )
        text = f"{unknown:,} lines of --read-answers belong to no request so far.\n" if unknown else ""
        if self.failures:
            kinds = ", ".join(f"{kind}: {count:,}" for kind, count in Counter(self.failures.values()).most_common(5))
            text += f"{len(self.failures):,} lines of --read-answers hold no answer ({kinds}).\n"
        return text


def write_batch(lines: Iterable[Mapping[str, Any]], file: Path) -> list[Path]:
    """The files that hold these requests: `file` and, beyond the limits of one, `file.2`, `file.3` …; none for none.

    They appear together, when all are written; existing ones are refused.
    """
    names: list[Path] = []
    writer: JsonlAppender | None = None
    count = size = 0
    try:
        for line in lines:
            data = line_of(line, file)
            if writer is None or count == MOST_LINES or size + len(data) > MOST_BYTES:
                if writer is not None:
                    writer.close()
                names.append(file if not names else file.with_suffix(f".{len(names) + 1}{file.suffix}"))
                if names[-1].exists():
                    raise ConfigError(f"{names[-1]} exists; give --write-requests a new name, or delete the file.")
                _temporary(names[-1]).unlink(missing_ok=True)  # of a killed run
                writer = JsonlAppender(_temporary(names[-1]))
                count = size = 0
            writer.append_line(data)
            count, size = count + 1, size + len(data)
    finally:
        if writer is not None:
            writer.close()
    for name in names:
        try:
            _temporary(name).replace(name)
        except OSError as error:
            raise os_error(error, name) from error
    return names


def _temporary(file: Path) -> Path:
    return file.with_name(f".{file.name}.tmp")
