"""Servers for tests, on a free port of this machine, and models whose answers identify the image."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from cxrlab.core.image_codec import encode_png, to_uint8
from cxrlab.core.model_interfaces import Capabilities, Generated
from cxrlab.serving.config import ServeConfig
from cxrlab.serving.http_server import Server
from cxrlab.serving.monitoring import Journal
from cxrlab.serving.service import open_service

NAME = "planted:echo"


def code_of(image: Any) -> int:
    """A number that stands for an image of these tests: the sum of its 8-bit values."""
    return int(np.asarray(image, np.int64).sum())


class Echo:
    """Answers with the image's number and the indication; an image with a white first pixel makes its batch fail."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s, self.batches, self.threads = delay_s, list[int](), set[int]()
        self.name, self.capabilities = NAME, Capabilities(batch=True)
        self.held = threading.Event()
        self.held.set()

    def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
        """One line per image."""
        self.batches.append(len(images))
        self.threads.add(threading.get_ident())
        self.held.wait(20)
        time.sleep(self.delay_s)
        if any(image[0, 0] == 1.0 for image in images):
            raise RuntimeError("planted failure of SECRET-REPORT")
        reasons = indications or [None] * len(images)
        return [
            Generated(f"image {code_of(to_uint8(image))} for {reason}")
            for image, reason in zip(images, reasons, strict=True)
        ]


class EchoTextModel:
    """A text model that returns its prompt."""

    def __init__(self) -> None:
        self.name, self.prompts = "planted:parrot", list[str]()

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """The prompt, with the arguments."""
        self.prompts += prompts
        return [Generated(f"{prompt} ({max_tokens}, {seed})", tokens=3) for prompt in prompts]


@contextmanager
def served(out: Path, config: ServeConfig | None = None, **given: Any) -> Iterator[Server]:
    """A server on a free port; `Echo` unless a model is given."""
    config = config or ServeConfig(NAME, port=0)
    given.setdefault("model", Echo())
    given.setdefault("journal", Journal(None, out / "log.jsonl"))
    service = open_service(config, out, **given)
    with Server(service) as server:
        yield server


def image_of(number: int, size: int = 16) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """An image of noise; the same number gives the same image, and its first pixel is black."""
    image = np.random.default_rng(number).integers(0, 256, (size, size), dtype=np.uint8)
    image[0, 0] = 0
    return image


def url_of(image: Any) -> str:
    """An image as a data URL."""
    return "data:image/png;base64," + base64.b64encode(encode_png(image)).decode()


def chat_request(
    image: Any = None, text: str | None = None, *, url: str | None = None, model: str = NAME, **more: Any
) -> Any:
    """A chat request with an image."""
    parts: list[dict[str, Any]] = [] if text is None else [{"type": "text", "text": text}]
    where = url if url is not None else url_of(image if image is not None else image_of(0))
    parts.append({"type": "image_url", "image_url": {"url": where}})
    return {"model": model, "messages": [{"role": "user", "content": parts}], **more}


def post(server: Server, request: Any, **more: Any) -> httpx.Response:
    """Send a request."""
    return httpx.post(f"{server.url}/chat/completions", json=request, timeout=30, **more)


def answer_text(answer: httpx.Response) -> str:
    """The text of a response."""
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text
