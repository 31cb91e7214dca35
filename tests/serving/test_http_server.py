"""The server as clients meet it: OpenAI's own client, ours, and plain HTTP."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from serving_models import NAME, Echo, EchoTextModel, answer_text, chat_request, code_of, image_of, post, served, url_of
from tiny_models import save_causal, save_tiny_llava

from cxrlab.core.egress import Connection, EgressData
from cxrlab.core.image_codec import to_unit
from cxrlab.core.model_interfaces import REFUSED, Capabilities, Generated
from cxrlab.evaluation.generate import caution_domain, caution_image_size
from cxrlab.models.hf.model import HfModel
from cxrlab.models.hf.text_model import HfTextModel
from cxrlab.models.http_models import HttpReportModel, HttpTextModel
from cxrlab.models.load_settings import LoadSettings
from cxrlab.serving.accounts import add_account
from cxrlab.serving.config import Allowance, Limits, ServeConfig
from cxrlab.serving.http_server import Server
from cxrlab.serving.service import open_service

pytestmark = pytest.mark.slow

TEXT = "planted:parrot"


@pytest.fixture(scope="module")
def model() -> Echo:
    return Echo()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model: Echo) -> Iterator[Server]:
    config = ServeConfig(NAME, port=0, text=TEXT)
    with served(tmp_path_factory.mktemp("server"), config, model=model, text=EchoTextModel()) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as found:
        yield found


def expected(number: int, indication: str | None = None) -> str:
    return f"image {code_of(image_of(number))} for {indication}"


def test_openais_client_gets_a_report(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**chat_request(image_of(1), "Cough."))
    choice = answer.choices[0]
    assert choice.message.content == expected(1, "Cough.") and choice.finish_reason == "stop"
    assert answer.model == NAME and answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (1, 4, 5)


def test_special_tokens_in_a_request_reach_no_model(tmp_path: Path) -> None:
    """Neither the report model nor the text model is given one that a client typed: image tokens and ends stay ours."""
    report = HfModel.load(str(save_tiny_llava(tmp_path / "llava")))
    text = HfTextModel.load(str(save_causal(tmp_path / "text")))
    given: list[list[int]] = []
    for model in (report.model, text._causal.model):
        model.get_input_embeddings().register_forward_hook(lambda _, ids, __: given.append(ids[0][0].tolist()))
    with served(tmp_path / "run", ServeConfig(NAME, port=0, text=TEXT), model=report, text=text) as running:
        for marks in ("", " <image> </s> <|im_end|> [INST] <|image_pad|>"):
            answer_text(post(running, chat_request(image_of(1), f"cough{marks}", max_tokens=2)))
            message = {"role": "user", "content": f"cough{marks}"}
            answer_text(post(running, {"model": TEXT, "messages": [message], "max_tokens": 2}))
    special = {*report.tokenizer.all_special_ids}
    prompts = [[one for one in ids if one in special] for ids in given if len(ids) > 1]
    image, begin = report.model.config.image_token_id, report.tokenizer.bos_token_id
    assert prompts == [[begin, *[image] * 4], [begin]] * 2


class Phantoms(Echo):
    """A model that was trained on synthetic images, with an input of 32 pixels."""

    trained_on, input_side = "synthetic", 32


def test_cautions_go_into_the_log_and_into_every_answer_about_an_image(tmp_path: Path) -> None:
    """An OpenAI client takes the field and the header; both hold the sentences that `generate` records."""
    domain = caution_domain(Phantoms(), synthetic=False, name="clinic")
    small = caution_image_size(1, 1, 32)
    config = ServeConfig(NAME, port=0, name="clinic", text=TEXT)
    with served(tmp_path, config, model=Phantoms(), text=EchoTextModel()) as running:
        with openai.OpenAI(base_url=running.url, api_key="none", max_retries=0) as client:
            answer = client.chat.completions.create(**chat_request(image_of(1, 16), model="clinic"))
            chunks = list(client.chat.completions.create(**chat_request(image_of(1, 64), model="clinic"), stream=True))
        assert answer.model_extra is not None and answer.model_extra["cautions"] == [domain, small]
        assert all(chunk.model_extra is not None and chunk.model_extra["cautions"] == [domain] for chunk in chunks)
        for streamed in (False, True):
            sent = post(running, chat_request(image_of(1, 16), model="clinic", stream=streamed))
            assert sent.headers["X-Cxrlab-Caution"] == f"{domain} {small}"
        words = {"model": TEXT, "messages": [{"role": "user", "content": "x"}]}
        assert post(running, words).json()["cautions"] == []
        ours = HttpReportModel.load(f"{running.url}#clinic").generate([to_unit(image_of(1, 16))])[0]
        assert ours.extra["cautions"] == [domain, small]
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    messages = [line["message"] for line in logged if line["event"] == "caution"]
    assert messages == [domain, caution_image_size(4, 5, 32)] and logged[1]["event"] == "caution"


def test_a_model_without_a_reason_for_caution_gives_none(tmp_path: Path) -> None:
    synthetic = EgressData("a corpus", synthetic=True)
    with served(tmp_path, model=Phantoms(), images=synthetic) as running:
        sent = post(running, chat_request(image_of(1, 32)))
        assert sent.json()["cautions"] == [] and "X-Cxrlab-Caution" not in sent.headers


def test_openais_client_gets_it_streamed(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            **chat_request(image_of(2)), stream=True, n=2, stream_options={"include_usage": True}
        )
    )
    for place in (0, 1):
        pieces = [choice for chunk in chunks for choice in chunk.choices if choice.index == place]
        assert "".join(piece.delta.content or "" for piece in pieces) == expected(2)
        assert pieces[0].delta.role == "assistant" and pieces[-1].finish_reason == "stop" and len(pieces) > 4
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 8
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_a_stream_ends_with_done_and_without_usage_unless_it_is_wanted(server: Server) -> None:
    answer = post(server, chat_request(image_of(3), stream=True))
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]" and "usage" not in answer.text
    assert all(json.loads(line.removeprefix("data: "))["object"] == "chat.completion.chunk" for line in lines[:-1])


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [NAME, TEXT]
    assert client.models.retrieve(NAME).id == NAME
    with pytest.raises(openai.NotFoundError, match="planted:parrot"):
        client.models.retrieve("gpt")


def test_openais_client_understands_our_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(**chat_request(image_of(1), model="gpt-9"))
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(**chat_request(url="https://example.org/image.png"))
    assert wrong.value.code == "invalid_request" and "never fetches" in str(wrong.value)


def test_text_goes_to_the_text_model(client: openai.OpenAI) -> None:
    """Whichever name is asked for, the answer says who gave it."""
    for name in (TEXT, NAME):
        answer = client.chat.completions.create(
            model=name, messages=[{"role": "user", "content": "Why?"}], max_tokens=7, seed=5
        )
        assert answer.choices[0].message.content == "Why? (7, 5)" and answer.model == TEXT
    several = client.chat.completions.create(model=TEXT, messages=[{"role": "user", "content": "Why?"}], n=2, seed=5)
    assert [choice.message.content for choice in several.choices] == ["Why? (512, 5)", "Why? (512, 6)"]
    with pytest.raises(openai.BadRequestError, match="reads text only"):
        client.chat.completions.create(**chat_request(image_of(1), model=TEXT))


def test_our_own_client_reads_the_same_words(server: Server) -> None:
    images = [to_unit(image_of(number)) for number in range(5)]
    reporter = HttpReportModel.load(f"{server.url}#{NAME}", None, LoadSettings(connection=Connection(tries=1)))
    found = reporter.generate(images, ["Fever.", None, "Cough.", None, None])
    reasons = ["Fever.", None, "Cough.", None, None]
    assert [one.text for one in found] == [expected(number, reason) for number, reason in enumerate(reasons)]
    text = HttpTextModel.load(f"{server.url}#{TEXT}", Connection(tries=1))
    assert [one.text for one in text.complete(["A", "B"], max_tokens=9, seed=2)] == ["A (9, 2)", "B (9, 2)"]


def test_many_clients_each_get_their_own_report(server: Server, model: Echo) -> None:
    before = len(model.batches)
    with ThreadPoolExecutor(32) as pool, httpx.Client(limits=httpx.Limits(max_connections=32), timeout=30) as shared:

        def ask(number: int) -> bool:
            answer = shared.post(f"{server.url}/chat/completions", json=chat_request(image_of(number), f"n {number}"))
            return answer_text(answer) == expected(number, f"n {number}")

        assert all(pool.map(ask, range(128)))
    sizes = model.batches[before:]
    assert sum(sizes) == 128 and max(sizes) > 1
    assert len(model.threads) == 1, "one thread owns the model"


def test_every_answer_has_a_number_and_may_not_be_sniffed(server: Server) -> None:
    answers = [httpx.get(f"{server.address}{path}") for path in ("/healthz", "/nothing", "/v1/models", "/docs")]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 4
    assert {answer.headers["x-content-type-options"] for answer in answers} == {"nosniff"}
    assert all("server" not in answer.headers for answer in answers)


def test_the_page_of_the_description_loads_nothing(server: Server) -> None:
    page = httpx.get(f"{server.address}/docs")
    assert page.status_code == 200 and "/v1/chat/completions" in page.text and "max_tokens" in page.text
    assert re.findall(r"""(?:src|href|url\(|@import)\s*=?\s*["'(]?([^"'\s>]+)""", page.text) == ["openapi.json"]
    assert "<script" not in page.text and "default-src 'none'" in page.headers["content-security-policy"]
    described = httpx.get(f"{server.address}/openapi.json").json()
    assert described["components"]["schemas"]["ChatRequest"]["properties"]["n"]["anyOf"][0]["maximum"] == 8


def test_metrics_are_in_the_format_of_prometheus(server: Server) -> None:
    post(server, chat_request(image_of(1)))
    post(server, chat_request(image_of(1), model="unknown"))
    answer = httpx.get(f"{server.address}/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    line = re.compile(r'cxrlab_\w+(\{\w+="[^"\\\n]*"(,\w+="[^"\\\n]*")*\})? (\+Inf|[0-9.e+-]+)')
    values = {}
    for text in answer.text.splitlines():
        if not text.startswith("# "):
            assert line.fullmatch(text), text
            name, _, value = text.rpartition(" ")
            values[name] = float(value)
    assert values['cxrlab_requests_total{route="/v1/chat/completions",status="200"}'] >= 1
    assert values['cxrlab_refusals_total{code="model_not_found"}'] >= 1
    assert values["cxrlab_batch_size_count"] == values['cxrlab_batch_size_bucket{le="+Inf"}'] >= 1
    assert values['cxrlab_request_seconds_bucket{le="60.0"}'] == values["cxrlab_request_seconds_count"]
    assert values["cxrlab_in_flight"] == values["cxrlab_queue_length"] == 0 and values["cxrlab_model_alive"] == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/healthz", 405),
        ("GET", "/v1/models/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/healthz/", 404),
    ],
)
def test_other_paths_and_methods_are_answered(server: Server, method: str, path: str, status: int) -> None:
    answer = httpx.request(method, f"{server.address}{path}")
    assert answer.status_code == status and answer.json()["error"]["message"].endswith(".")
    assert status != 405 or answer.headers["allow"]


def test_a_page_of_another_site_cannot_ask(server: Server) -> None:
    """A name that was led to this machine is not ours, and a form cannot send JSON."""
    for host in ("evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example"):
        answer = httpx.get(f"{server.url}/models", headers={"Host": host})
        assert answer.status_code == 421, host
    assert httpx.get(f"{server.url}/models", headers={"Host": "localhost:1"}).status_code == 200
    body = json.dumps(chat_request(image_of(1)))
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = httpx.post(f"{server.url}/chat/completions", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 415, kind


def test_a_image_that_fails_fails_alone_and_tells_nothing(server: Server) -> None:
    bad = image_of(7)
    bad[0, 0] = 255
    with ThreadPoolExecutor(8) as pool:
        images = [image_of(1), bad, image_of(2), image_of(3)]
        answers = list(pool.map(lambda image: post(server, chat_request(image)), images))
    assert [answer.status_code for answer in answers] == [200, 500, 200, 200]
    error = answers[1].json()["error"]
    assert error["code"] == "internal_error" and "SECRET" not in answers[1].text
    assert answers[1].headers["x-request-id"] in error["message"]
    assert [answer_text(answer) for answer in (answers[0], answers[2])] == [expected(1), expected(2)]


def test_quotas_outlive_a_restart_and_failures_cost_nothing(tmp_path: Path) -> None:
    config = ServeConfig(NAME, port=0, allowance=Allowance(answers_total=3))
    bad = image_of(7)
    bad[0, 0] = 255
    with served(tmp_path, config) as server:
        assert post(server, chat_request(image_of(1), n=2)).status_code == 200
        assert post(server, chat_request(bad)).status_code == 500
        assert post(server, chat_request(url="data:image/png;base64,AAAA")).status_code == 400
        assert server.service.quotas.used("anonymous") == (2, 2)
    with served(tmp_path, config) as server:
        assert post(server, chat_request(image_of(1), n=2)).json()["error"]["code"] == "quota_exhausted"
        assert post(server, chat_request(image_of(1))).status_code == 200
        last = post(server, chat_request(image_of(1)))
        assert last.status_code == 429 and last.json()["error"]["code"] == "quota_exhausted"
        reporter = HttpReportModel.load(f"{server.url}#{NAME}", None, LoadSettings(connection=Connection(tries=3)))
        assert reporter.generate([to_unit(image_of(1))])[0].extra[REFUSED] is True


def test_keys_and_rates(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    key, other = add_account(keys, "clinic-a"), add_account(keys, "clinic-b")
    config = ServeConfig(NAME, port=0, keys=keys, allowance=Allowance(requests_per_minute=2))
    with served(tmp_path / "out", config) as server:
        for path in ("/v1/models", "/v1/models/x", "/metrics"):
            assert httpx.get(server.address + path).status_code == 401, path
        assert httpx.get(f"{server.address}/healthz").status_code == 200
        assert post(server, chat_request(image_of(1))).json()["error"]["code"] == "invalid_api_key"
        mine, theirs = {"Authorization": f"Bearer {key}"}, {"api-key": other}
        answers = [post(server, chat_request(image_of(1)), headers=mine) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[2].json()["error"]["code"] == "rate_limited" and int(answers[2].headers["retry-after"]) > 0
        assert post(server, chat_request(image_of(1)), headers=theirs).status_code == 200
        assert httpx.get(f"{server.url}/models", headers={**theirs, "Host": "proxy.example"}).status_code == 200
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=server.url, api_key="wrong", max_retries=0).models.list()


def test_two_keys_in_one_request_are_refused(tmp_path: Path) -> None:
    """A proxy in front may have checked the other one."""
    key = add_account(tmp_path / "keys.yaml", "clinic-a")
    with served(tmp_path / "out", ServeConfig(NAME, port=0, keys=tmp_path / "keys.yaml")) as server:
        for name, value in (("Authorization", f"Bearer {key}"), ("api-key", key)):
            for others in ([], [value], ["Bearer wrong"]):
                pairs = [(name, value), *((name.lower(), other) for other in others)]
                answer = httpx.get(f"{server.url}/models", headers=pairs)
                assert answer.status_code == (400 if others else 200), (name, others)
                assert key not in answer.text
        both = {"Authorization": f"Bearer {key}", "api-key": "wrong"}
        assert httpx.get(f"{server.url}/models", headers=both).status_code == 400


def wait_for(condition: Any, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def test_a_client_that_leaves_is_taken_out_of_the_queue_and_gets_its_quota_back(tmp_path: Path) -> None:
    model = Echo()
    with served(tmp_path, ServeConfig(NAME, port=0, max_wait_ms=0), model=model) as server:
        model.held.clear()
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(post, server, chat_request(image_of(1)))
            wait_for(lambda: model.batches)
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{server.url}/chat/completions", json=chat_request(image_of(2)), timeout=0.3)
            wait_for(lambda: server.service.batcher.waiting == 0 and server.service.under_way == 1)
            wait_for(lambda: server.service.quotas.used("anonymous") == (1, 1))
            model.held.set()
            assert answer_text(first.result()) == expected(1)
        assert model.batches == [1] and server.service.pixels.taken == 0 and server.service.bodies.taken == 0


def test_more_requests_than_the_queue_takes_are_sent_away(tmp_path: Path) -> None:
    model = Echo()
    with served(tmp_path, ServeConfig(NAME, port=0, limits=Limits(queue=2)), model=model) as server:
        model.held.clear()
        with ThreadPoolExecutor(2) as pool:
            under_way = [pool.submit(post, server, chat_request(image_of(number))) for number in range(2)]
            wait_for(lambda: server.service.under_way == 2)
            third = post(server, chat_request(image_of(3)))
            assert third.status_code == 503 and third.json()["error"]["code"] == "overloaded"
            assert int(third.headers["retry-after"]) >= 1
            model.held.set()
            assert [future.result().status_code for future in under_way] == [200, 200]


def test_images_wait_for_room_when_others_hold_the_pixels(tmp_path: Path) -> None:
    """Space for one image of 256 pixels: the second is decoded when the first is answered."""
    model = Echo()
    limits = Limits(pixels=256, held_pixels=300)
    with served(tmp_path, ServeConfig(NAME, port=0, limits=limits), model=model) as server:
        assert post(server, chat_request(image_of(1, 17))).status_code == 413
        model.held.clear()
        with ThreadPoolExecutor(2) as pool:
            under_way = [pool.submit(post, server, chat_request(image_of(number))) for number in range(2)]
            wait_for(lambda: server.service.under_way == 2 and server.service.pixels.taken == 256)
            time.sleep(0.05)
            assert server.service.pixels.taken == 256
            model.held.set()
            assert [answer_text(future.result()) for future in under_way] == [expected(0), expected(1)]


def test_a_hung_or_dead_model_is_reported_by_healthz(tmp_path: Path) -> None:
    model = Echo()
    limits = Limits(hang_s=0.05, answer_s=1.5)  # on a busy machine the model begins late
    with served(tmp_path, ServeConfig(NAME, port=0, limits=limits), model=model) as server:
        health = f"{server.address}/healthz"
        assert httpx.get(health).json() == {"status": "ok"}
        model.held.clear()
        late = post(server, chat_request(image_of(1)))
        assert late.status_code == 504 and late.json()["error"]["code"] == "timeout"
        answer = httpx.get(health)
        assert (answer.status_code, answer.json()) == (503, {"status": "hung"})
        model.held.set()
        wait_for(lambda: httpx.get(health).status_code == 200)
        assert server.service.quotas.used("anonymous") == (1, 1), "the model had begun"
        server.service.batcher.stop()
        assert httpx.get(health).json() == {"status": "dead"}
        assert post(server, chat_request(image_of(1))).status_code == 503


class Declining:
    """A model behind an address whose server declines, or is not there."""

    name, capabilities = NAME, Capabilities(black_box=True)

    def generate(self, images: Any, indications: Any = None) -> list[Generated]:
        if images[0][0, 0] == 1.0:
            raise OSError("nobody there")
        return [Generated("not this one.", extra={REFUSED: True}) for _ in images]


def test_what_a_model_elsewhere_declines_is_declined(tmp_path: Path) -> None:
    bad = image_of(1)
    bad[0, 0] = 255
    with served(tmp_path, model=Declining()) as server:
        answer = post(server, chat_request(image_of(1)))
        assert answer.status_code == 403 and answer.json()["error"]["code"] == "refused_by_guard"
        assert answer.json()["error"]["message"] == "not this one."
        assert post(server, chat_request(bad)).status_code == 500
        assert server.service.quotas.used("anonymous") == (0, 0)


def test_an_orderly_end_lets_requests_finish_and_sends_others_away(tmp_path: Path) -> None:
    model = Echo()
    with served(tmp_path, model=model) as server, httpx.Client(timeout=30) as open_before:
        assert open_before.get(f"{server.address}/healthz").status_code == 200
        model.held.clear()
        with ThreadPoolExecutor(1) as pool:
            under_way = pool.submit(post, server, chat_request(image_of(1)))
            wait_for(lambda: model.batches)
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            wait_for(lambda: server.service.stopping)
            late = open_before.post(f"{server.url}/chat/completions", json=chat_request(image_of(2)))
            assert late.status_code == 503 and late.headers["retry-after"]
            assert open_before.get(f"{server.address}/healthz").json() == {"status": "stopping"}
            model.held.set()
            assert answer_text(under_way.result()) == expected(1)
            stopping.join(10)
            assert not stopping.is_alive()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.address}/healthz")


def test_a_port_in_use_is_said(server: Server, tmp_path: Path) -> None:
    from cxrlab.core.errors import RunError

    port = int(server.address.rpartition(":")[2])
    with pytest.raises(RunError, match="give another --port"), served(tmp_path, ServeConfig(NAME, port=port)):
        pass


def test_plain_base64_is_a_picture_too(server: Server) -> None:
    plain = url_of(image_of(4)).partition(",")[2]
    assert answer_text(post(server, chat_request(url=plain))) == expected(4)


@pytest.mark.parametrize(
    ("model", "text", "message"),
    [
        ("https://me:secret@elsewhere.example/v1#m", None, "contains a login"),
        ("https://elsewhere.example/v1?api_key=secret#m", None, "contains a key"),
        ("https://elsewhere.example/v1#m", "https://other.example/v1#m", "would be sent to"),
    ],
)
def test_a_name_that_may_not_be_served_is_written_nowhere(
    model: str, text: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cxrlab.core.errors import ConfigError

    monkeypatch.setenv("CXRLAB_API_KEY", "k" * 20)
    loading = LoadSettings(connection=Connection(egress_permission="The board, for this test"))
    with pytest.raises(ConfigError, match=message):
        open_service(ServeConfig(model, text=text, loading=loading), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_server_before_a_model_elsewhere_needs_leave_for_images_that_nobody_knows(tmp_path: Path) -> None:
    """A rehearsal knows whose images they are: those of a synthetic corpus need none."""
    from cxrlab.core.egress import EgressData
    from cxrlab.core.errors import ConfigError

    config = ServeConfig("https://elsewhere.example/v1#m", port=0)
    with pytest.raises(ConfigError, match="images of clients may hold patients' data"):
        open_service(config, tmp_path / "out")
    open_service(config, tmp_path / "out", model=Echo(), images=EgressData("phantoms", synthetic=True)).close()
