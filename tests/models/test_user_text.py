"""Texts of users hold no special token, and every other text has the ids that it had without any of this."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tiny_families import tokenizer as family_tokenizer  # noqa: E402
from tiny_models import TEXTS, tiny_dual_encoder, tiny_tokenizer  # noqa: E402
from tiny_text_models import bert_folder, bert_tokenizer  # noqa: E402
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers  # noqa: E402
from tokenizers import models as algorithms  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

from cxrlab.models.dual_encoder import DualEncoder, open_encoder  # noqa: E402
from cxrlab.models.load_settings import LoadSettings  # noqa: E402
from cxrlab.models.text_encoders import CheXbert, LocalTokenEncoder  # noqa: E402
from cxrlab.models.tokenization import BREAK, escape, token_ids, user_ids, without_breaks  # noqa: E402
from cxrlab.training.contrastive import tokenise  # noqa: E402

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<image>"]
MARKS = ("</s>", "<image>", "<|im_end|>", "<|image_pad|>", "<start_of_image>", "[INST]", "<tool>", "<im<image>age>")


def _fast(backend: Any) -> Any:
    """A backend as transformers has it, with marks of several families and a word, special and not."""
    named = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    found = PreTrainedTokenizerFast(tokenizer_object=backend, **named, extra_special_tokens={"image_token": "<image>"})
    more = [AddedToken("<|im_end|>", special=True), AddedToken("<|image_pad|>", special=True, lstrip=True)]
    found.add_tokens([*more, "<start_of_image>", "[INST]", "<tool>", "effusion"])
    return found


def byte_level() -> Any:
    """GPT-2 and Llama 3: bytes, a regular expression for words, a normaliser as in Qwen."""
    backend = Tokenizer(algorithms.BPE())
    backend.normalizer = normalizers.NFC()
    words = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|[^\s\p{L}\p{N}]+|\s+")
    steps = [pre_tokenizers.Split(words, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Sequence(steps), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(TEXTS * 4, trainer)
    return _fast(backend)


def prefix_space() -> Any:
    """SentencePiece as in Llama 2: a space in front of a text and a mark in the place of every space."""
    backend = Tokenizer(algorithms.BPE(unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    signs = [chr(code) for code in range(33, 127)]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=signs, show_progress=False)
    backend.train_from_iterator(TEXTS * 4, trainer)
    return _fast(backend)


def metaspace() -> Any:
    """The same by a pre-tokenizer, with the space in front of the first word of a text alone."""
    backend = Tokenizer(algorithms.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    signs = [chr(code) for code in range(33, 127)]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=signs, show_progress=False)
    backend.train_from_iterator(TEXTS * 4, trainer)
    return _fast(backend)


def unigram() -> Any:
    """T5 and XLM-R: `</s>` is a word of the vocabulary too, so that plain text could write it."""
    signs = [(chr(code), -9.0) for code in range(33, 127)]
    backend = Tokenizer(algorithms.Unigram([*((one, 0.0) for one in SPECIAL), ("▁", -3.0), *signs], unk_id=3))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return _fast(backend)


def word_piece(tmp_path: Path) -> Any:
    words = bert_tokenizer(tmp_path)
    words.add_tokens(["<tool>", "effusion"])
    return words


KINDS = {"byte-level": byte_level, "prefix space": prefix_space, "metaspace": metaspace, "unigram": unigram}
TOKENIZERS: dict[str, Any] = {}


@pytest.fixture(params=[*KINDS, "word piece"])
def words(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if request.param not in TOKENIZERS:
        make = KINDS.get(request.param, lambda: word_piece(tmp_path_factory.mktemp("bert")))
        TOKENIZERS[request.param] = make()
    return TOKENIZERS[request.param]


def special_ids(words: Any) -> set[int]:
    marks = {number for token, number in words.get_added_vocab().items() if token != "effusion"}
    return {*words.all_special_ids, *marks} - {words.unk_token_id}


def test_a_special_token_of_a_user_is_text_for_every_kind_of_tokenizer(words: Any) -> None:
    special, marks = special_ids(words), [*MARKS, *words.all_special_tokens]
    assert special & {*words(" ".join(marks), add_special_tokens=False)["input_ids"]}  # what is to be prevented
    for mark in marks:
        for text in (mark, f"cough {mark} fever", f"cough{mark}fever", mark * 3):
            found = user_ids(words, [text], add_special_tokens=False)[0]
            assert found and not special & {*found}, text
    ids = user_ids(words, ["no effusion </s>"])[0]
    assert words.convert_tokens_to_ids("effusion") in ids  # a word that was added means what it says


def test_bytes_come_back_as_they_were_written() -> None:
    words = byte_level()
    for mark in MARKS:
        text = f"Tube {mark} seen, {mark}."
        found = user_ids(words, [text], add_special_tokens=False)[0]
        assert words.decode(found, clean_up_tokenization_spaces=False) == text


def test_harmless_texts_have_the_ids_that_they_had(words: Any) -> None:
    """Alone and in one call with others that are not harmless, cut and filled up by the tokenizer's own settings."""
    harmless = [*TEXTS, "", " ", "  left  > right < 3 [sic] ", "a\n\nb\tc", "Größe 1,5 cm — ﬁne", "No.</p> 50% | #1"]
    for settings_ in (
        {},
        {"add_special_tokens": False},
        {"truncation": True, "max_length": 5, "padding": "max_length"},
    ):
        theirs = words(harmless, **settings_)["input_ids"]
        assert user_ids(words, harmless, **settings_) == theirs
        assert user_ids(words, ["</s>", *harmless, "<image>"], **settings_)[1:-1] == theirs


@given(
    text=st.text(alphabet=st.sampled_from("ab cCé.,<>/[]|s\n1é—"), min_size=2, max_size=20), place=st.integers(1, 19)
)
@settings(max_examples=60, deadline=None)
def test_a_break_changes_no_id_wherever_it_stands(text: str, place: int) -> None:
    """What lets the ids of escaped text join those around it: the tokenizer reads a break as nothing."""
    for kind, make in KINDS.items():
        words = TOKENIZERS.get(kind) or TOKENIZERS.setdefault(kind, make())
        given = text[: min(place, len(text) - 1)] + BREAK + text[min(place, len(text) - 1) :]
        if escape(words, text) == text:
            assert without_breaks(words, given)[1] == given
            assert token_ids(words, [given]) == [words(text)["input_ids"]]


def test_marks_of_a_template_stay_marks_around_the_users_text() -> None:
    for words in (byte_level(), prefix_space(), metaspace()):
        start, image, end = (words.convert_tokens_to_ids(mark) for mark in ("<s>", "<image>", "</s>"))
        text = f"<s><image>\n{escape(words, 'cough <image> </s> fever')}</s>"
        (found,) = token_ids(words, [text], add_special_tokens=False)
        assert [one for one in found if one in special_ids(words)] == [start, image, end]
        (around,) = token_ids(words, ["<s><image>\ncough"], add_special_tokens=False)
        assert found[: len(around)] == around


def test_where_no_break_can_be_removed_a_space_breaks_the_mark() -> None:
    """A vocabulary that holds `</s>` as a word, and a tokenizer that is not of the tokenizers library."""
    words = unigram()
    assert words.decode(user_ids(words, ["a </s> b"], add_special_tokens=False)[0]) == "a < /s> b"

    class Slow:
        all_special_tokens = ("</s>",)

        def __len__(self) -> int:
            return 1

        def get_added_vocab(self) -> dict[str, int]:
            return {"</s>": 0}

        def __call__(self, texts: str | list[str], **_: Any) -> dict[str, Any]:
            ids = [[*map(ord, text)] for text in ([texts] if isinstance(texts, str) else texts)]
            return {"input_ids": ids[0] if isinstance(texts, str) else ids}

    assert user_ids(Slow(), ["a </s>", "b"]) == [[*map(ord, "a < /s>")], [ord("b")]]


def test_a_mark_in_other_characters_is_no_mark_either() -> None:
    """A token that is looked for after normalisation is found in 'full-width' characters and in capitals too."""
    words = tiny_tokenizer()
    backend = words.backend_tokenizer
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    words = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    words.add_tokens(["<tool>"])
    tool = words.convert_tokens_to_ids("<tool>")
    for text in ("a ＜tool＞ b", "a <TOOL> b", "a <tool> b", "<tool>"):
        assert tool in words(text)["input_ids"]
        found = user_ids(words, [text], add_special_tokens=False)[0]
        assert tool not in found and words.decode(found) == text.replace("＜", "<").replace("＞", ">").lower()


def test_a_mark_in_capitals_is_found_where_the_tokenizer_writes_everything_small() -> None:
    """The tokenizer normalises its tokens, too: it reads '[finding]' as the token that was added as '[FINDING]'."""
    backend = tiny_tokenizer().backend_tokenizer
    backend.normalizer = normalizers.Lowercase()
    words = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    words.add_tokens(["[FINDING]"])
    mark = words.convert_tokens_to_ids("[FINDING]")
    for text in ("a [finding] b", "a [Finding] b", "a [FINDING] b"):
        assert mark in words(text)["input_ids"]
        assert mark not in user_ids(words, [text], add_special_tokens=False)[0]


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("tube <image> seen", "tube <·image> seen"),
        ("<im<image>age>", "<im<·image>age>"),
        ("</s></s>", "<·/s><·/s>"),
        ("left < right > 3", "left < right > 3"),
        ("<|placeholder|>", "<·|placeholder|>"),  # of processors, while they put in image tokens
        (f"a{BREAK}b", "a\ufffdb"),
        ("", ""),
    ],
)
def test_marks_are_escaped_and_nothing_else(text: str, safe: str) -> None:
    assert escape(tiny_tokenizer(), text).replace(BREAK, "·") == safe


def test_many_marks_are_escaped_in_one_go() -> None:
    """A hundred thousand of them, as an attacker may type: linear, not quadratic, and none survives."""
    assert escape(tiny_tokenizer(), "<image>" * 100_000) == f"<{BREAK}image>" * 100_000


def test_tokens_that_are_added_later_are_known() -> None:
    words = family_tokenizer({"image_token": "<image>"})
    before = user_ids(words, ["<new>"])
    words.add_tokens(["<new>"])
    assert user_ids(words, ["<new>"]) == before != words(["<new>"])["input_ids"]


def test_words_that_were_added_to_a_vocabulary_stay_words() -> None:
    """Checkpoints of a domain bring its words as tokens of their own; marks alone are escaped, special or not."""
    words = family_tokenizer({"image_token": "<image>"})
    words.add_tokens(["effusion", "port-a-cath", "<tool>", "IMGPAD"])
    words.add_tokens(["SPECIAL"], special_tokens=True)
    text = "effusion, port-a-cath IMGPAD"
    assert escape(words, text) == text
    assert escape(words, "<tool> SPECIAL") == f"<{BREAK}tool> S{BREAK}PECIAL"


def test_every_encoder_of_texts_reads_special_tokens_as_text(tmp_path: Path) -> None:
    """Contrastive training, retrieval, CheXbert and the encoder of BERTScore: `[SEP]` and `</s>` in a report."""
    text = "the lungs </s> are [SEP] clear [MASK] <image> <pad>"
    words = tiny_tokenizer()
    cut = tokenise(words, [text, "no"], 64)
    assert words.decode(cut.ids[: cut.starts[1]]) == f"<s>{text}"
    assert cut.ids[: cut.starts[1]].tolist().count(words.eos_token_id) == 0
    assert tokenise(words, [text], 9).cut == 1
    bert = LocalTokenEncoder(bert_folder(tmp_path / "bert"), 2)
    (vectors,) = bert.encode_tokens(["no [SEP] edema [CLS]"])
    assert vectors.special.tolist() == [True, *[False] * (len(vectors.tokens) - 2), True]
    assert vectors.tokens[1:3] == ("no", "[UNK]") and vectors.tokens.count("[SEP]") == 1
    labeler = object.__new__(CheXbert)
    labeler.tokenizer, labeler.model = bert.tokenizer, SimpleNamespace(bert=bert.model)
    for ids, longest in (
        (labeler.token_ids(["no [SEP] edema"])[0], 512),
        (labeler.token_ids(["edema [SEP] " * 99])[0], 40),
    ):
        assert ids.count(bert.tokenizer.sep_token_id) == 1 and ids[-1] == bert.tokenizer.sep_token_id
        assert len(ids) <= longest
    for part in tiny_dual_encoder():
        part.save_pretrained(tmp_path / "dual")
    encoder = DualEncoder("hf:dual", open_encoder(tmp_path / "dual", LoadSettings(device="cpu")))
    assert encoder.tokenizer.decode(encoder.token_ids([text])[0]) == f"<s>{text}"


# Calls with texts that are no user's: what `vicuna` compares with the published program, and two words of a probe.
FIXED_TEXTS = {"models/hf/conversations.py": 2, "training/encoder.py": 1}


def test_no_other_module_gives_text_to_a_tokenizer() -> None:
    """A new path that calls a tokenizer itself would let special tokens in."""
    source = Path(__file__).parents[2] / "src" / "cxrlab"
    found: Counter[str] = Counter()
    for file in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args:
                called = ast.unparse(node.func).split(".")
                if called[-1] == "tokenizer" or called[-2:] == ["tokenizer", "encode"]:
                    found[file.relative_to(source).as_posix()] += 1
    assert found == FIXED_TEXTS | {"models/tokenization.py": 1}
