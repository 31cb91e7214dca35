"""Serve a model in this process and ask it as any client of the protocol does, in one piece and streamed.

python examples/ask_a_server.py runs/asked
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import httpx

from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.models.http_models import data_url
from cxrlab.serving.config import ServeConfig
from cxrlab.serving.http_server import Server
from cxrlab.serving.service import open_service

MODEL = "retrieval:{}"  # with the extra 'models' installed: builtin:reporter


def main(out: Path) -> None:
    """Make a corpus, a server's folder and a file with the report in `out`."""
    corpus = make_phantom(PhantomConfig(n=60, size=96, seed=7), out / "corpus")
    study = next(corpus.studies("test"))
    content = [
        {"type": "text", "text": "Indication: cough."},
        {"type": "image_url", "image_url": {"url": data_url(corpus.image(study))}},
    ]
    asked = {"model": "reporter", "messages": [{"role": "user", "content": content}]}

    config = ServeConfig(MODEL.format(corpus.path), name="reporter", port=0)
    with Server(open_service(config, out / "server")) as server:
        url = f"{server.url}/chat/completions"
        whole = httpx.post(url, json=asked).raise_for_status().json()
        with httpx.stream("POST", url, json={**asked, "stream": True}) as events:
            lines = [line.removeprefix("data: ") for line in events.iter_lines() if line]
    report = whole["choices"][0]["message"]["content"]
    streamed = "".join(json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines[:-1])
    assert streamed == report and lines[-1] == "[DONE]"
    print(f"{study.id}: {report}")
    (out / "report.txt").write_text(report + "\n")
    print(out / "report.txt")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/asked"))
