"""Requests made from the OpenAPI description: whatever it allows or forbids, the server never fails at it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from serving_models import NAME, Echo, EchoTextModel, chat_request, served

from cxrlab.serving.config import ServeConfig
from cxrlab.serving.http_server import Server

pytestmark = pytest.mark.slow

CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
]
OPERATIONS = (
    ("/v1/chat/completions", "POST"),
    ("/v1/models", "GET"),
    ("/v1/models/{name}", "GET"),
    ("/healthz", "GET"),
    ("/metrics", "GET"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = ServeConfig(NAME, port=0, text="planted:parrot")
    with served(tmp_path_factory.mktemp("server"), config, model=Echo(), text=EchoTextModel()) as running:
        yield running


@pytest.fixture(scope="module")
def description(server: Server) -> Any:
    schema = schemathesis.openapi.from_dict(httpx.get(f"{server.address}/openapi.json").json())
    schema.config.base_url = server.address
    return schema


def test_the_description_lists_every_route(description: Any) -> None:
    found = {(one.ok().path, one.ok().method.upper()) for one in description.get_all_operations()}
    assert found == set(OPERATIONS)


@pytest.mark.parametrize(
    ("path", "method", "mode"),
    [*((*one, GenerationMode.POSITIVE) for one in OPERATIONS), (*OPERATIONS[0], GenerationMode.NEGATIVE)],
)
def test_no_request_of_the_description_makes_the_server_fail(
    description: Any, path: str, method: str, mode: GenerationMode
) -> None:
    """Most requests name the model, and half hold an image: else they would end at the name or at a made-up picture."""
    seen: Counter[int] = Counter()
    cases = description[path][method].as_strategy(generation_mode=mode)

    @settings(
        max_examples=40 if method == "POST" else 15,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def ask(case: Any) -> None:
        number = sum(seen.values())
        if isinstance(case.body, dict) and number % 4:
            case.body["model"] = NAME
            if number % 2:
                case.body["messages"] = chat_request()["messages"]
        answer = case.call()
        seen[answer.status_code] += 1
        assert answer.status_code < 500, answer.text
        if answer.status_code >= 400:
            error = answer.json()["error"]
            assert error["message"].endswith(".") and error["code"]
        case.validate_response(answer, checks=CHECKS)

    ask()
    if method == "POST":  # else it would be about one kind of answer
        assert seen[400] >= 5 and (mode is GenerationMode.NEGATIVE or seen[200] >= 5), seen
