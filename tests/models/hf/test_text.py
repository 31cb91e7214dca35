from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
from tiny_models import TEXTS, save_causal, save_tiny_llava
from tiny_text_models import bert_folder

from cxrlab.core.config import config_from
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.llm_requests import LLMConfig
from cxrlab.core.model_interfaces import TextModel
from cxrlab.models.hf.text_model import HfTextModel
from cxrlab.models.llm_cache import CachedTextModel, HasFingerprint, StreamsCompletions
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_registry import load_text_model

CHAT = "{% for turn in messages %}<s>{{ turn['role'] }}: {{ turn['content'] }}</s>{% endfor %}"
PROMPTS = ("Small left pleural effusion.", "The", *TEXTS, "Is there a tube?", "Both lungs are clear. " * 4, "No", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_causal(tmp_path_factory.mktemp("causal") / "tiny")


@pytest.fixture(scope="module")
def model(folder: Path) -> HfTextModel:
    return HfTextModel.load(str(folder))


def test_it_is_a_text_model_by_its_name(folder: Path) -> None:
    model = load_text_model(f"hf:{folder}")
    assert isinstance(model, HfTextModel) and model.name == f"hf:{folder}"
    assert isinstance(model, TextModel)
    assert isinstance(model, StreamsCompletions) and isinstance(model, HasFingerprint)


def test_a_batch_of_all_lengths_gives_what_each_prompt_gives_alone(model: HfTextModel) -> None:
    """Padding on the left must not be seen; the batch is larger than what goes through at once."""
    together = model.complete(PROMPTS, max_tokens=12)
    alone = [model.complete([prompt], max_tokens=12)[0] for prompt in PROMPTS]
    assert [one.text for one in together] == [one.text for one in alone]
    assert [one.tokens for one in together] == [one.tokens for one in alone]
    # Words of random weights hardly depend on what stands before them; their probabilities do.
    sure = [one.mean_logprob for one in alone]
    assert [one.mean_logprob for one in together] == pytest.approx(sure, abs=1e-6)
    assert len({one.text for one in together}) > 3  # answers differ, so that the comparison says something


def test_float16_is_a_flag_and_gives_finite_log_probabilities(model: HfTextModel, folder: Path) -> None:
    """For a GPU without bfloat16, such as a V100: the precision that the refusal for lack of memory names there."""
    config = config_from(LLMConfig, None, ["loading.dtype=float16"])
    half = HfTextModel.load(str(folder), loading=LoadSettings(dtype=config.loading.dtype))
    found, exact = (one.complete(PROMPTS[:3], max_tokens=6) for one in (half, model))
    assert all(one.mean_logprob is not None and math.isfinite(one.mean_logprob) for one in found)
    assert found[0].mean_logprob != exact[0].mean_logprob == pytest.approx(found[0].mean_logprob, abs=0.05)


def test_it_writes_what_transformers_writes(model: HfTextModel, folder: Path) -> None:
    """The peer: `generate` of transformers itself, greedy, on one prompt."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, peer = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = tokenizer(PROMPTS[0], return_tensors="pt")
    with torch.no_grad():
        written = peer.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :]
    (found,) = model.complete([PROMPTS[0]], max_tokens=12)
    assert found.text == tokenizer.decode(written, skip_special_tokens=True).strip()
    assert found.tokens == len(written)
    assert found.extra["prompt_tokens"] == ids["input_ids"].shape[1]


def test_an_answer_that_is_cut_says_so(model: HfTextModel) -> None:
    answers = model.complete(PROMPTS, max_tokens=3)
    for answer in answers:
        assert answer.tokens is not None and answer.tokens <= 3
        assert answer.tokens == 3 or "truncated" not in answer.extra
    assert any(answer.extra.get("truncated") for answer in answers)
    assert model.complete([]) == []


def test_a_prompt_that_does_not_fit_is_refused_before_any_is_answered(model: HfTextModel) -> None:
    coming = model.completions(["short", "left pleural effusion " * 200], max_tokens=8)
    with pytest.raises(ConfigError, match=r"a prompt of [\d,]+ tokens and an answer of up to 8 exceed the \d+"):
        next(coming)


def test_a_chat_template_is_used_and_its_words_cannot_be_forged(tmp_path: Path) -> None:
    model = HfTextModel.load(str(save_causal(tmp_path / "chat", template=CHAT)))
    tokenizer = model._causal.tokenizer
    ids = model._ids(f"clear {tokenizer.eos_token} <image> effusion")
    assert tokenizer.decode(ids) == "<s>user: clear </s> <image> effusion</s>"
    special = {*tokenizer.all_special_ids}
    assert [one for one in ids if one in special] == [tokenizer.bos_token_id, tokenizer.eos_token_id]  # the template's
    assert model.complete(["clear"], max_tokens=4)[0].extra["prompt_tokens"] == len(model._ids("clear"))


def test_another_set_of_weights_or_another_template_has_another_fingerprint(folder: Path, tmp_path: Path) -> None:
    first = HfTextModel.load(str(folder)).fingerprint
    assert first == HfTextModel.load(str(folder)).fingerprint
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert HfTextModel.load(str(copy)).fingerprint == first  # wherever it lies
    others = [save_causal(tmp_path / "seed", 1), save_causal(tmp_path / "chat", template=CHAT)]
    assert len({first, *(HfTextModel.load(str(other)).fingerprint for other in others)}) == 3


def test_weights_that_changed_under_one_name_are_asked_again(tmp_path: Path) -> None:
    place, run = tmp_path / "model", tmp_path / "run"
    answers, paid = [], []
    for seed in (0, 0, 1):
        shutil.rmtree(place, ignore_errors=True)
        model = HfTextModel.load(str(save_causal(place, seed)))
        with CachedTextModel(model, folder=run) as asked:
            answers.append(asked.complete(PROMPTS[:3], max_tokens=6)[0].text)
            paid.append(asked.paid)
        assert answers[-1] == model.complete(PROMPTS[:1], max_tokens=6)[0].text
    assert paid == [3, 3, 6]


def test_what_is_no_causal_model_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="reads images .'llava'.*not a causal"):
        load_text_model(f"hf:{save_tiny_llava(tmp_path / 'llava')}")
    (tmp_path / "bert").mkdir()
    with pytest.raises(DataError, match="an encoder .'bert'"):
        load_text_model(f"hf:{bert_folder(tmp_path / 'bert')}")
    with pytest.raises(DataError, match="has no config.json"):
        (tmp_path / "empty").mkdir()
        load_text_model(f"hf:{tmp_path / 'empty'}")
    with pytest.raises(DataError, match="does not exist"):
        load_text_model(f"hf:{tmp_path}/absent")


def test_an_adapter_of_a_causal_model_is_merged_into_it(folder: Path, tmp_path: Path) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(3)
    base = AutoModelForCausalLM.from_pretrained(folder)
    wrapped = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    wrapped.save_pretrained(tmp_path / "adapter")
    adapted, plain = HfTextModel.load(str(tmp_path / "adapter")), HfTextModel.load(str(folder))
    assert adapted.fingerprint != plain.fingerprint
    reported, untold = (model.complete(PROMPTS, max_tokens=8) for model in (adapted, plain))
    assert [one.mean_logprob for one in reported] != [one.mean_logprob for one in untold]


def test_code_that_comes_with_a_checkpoint_is_not_run(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "foreign"))
    (copy / "config.json").write_text('{"model_type": "own", "auto_map": {"AutoConfig": "modeling_own.Config"}}')
    (copy / "modeling_own.py").write_text("raise SystemExit('run')")
    with pytest.raises(ConfigError, match="would run modeling_own.py"):
        HfTextModel.load(str(copy))
