"""Published report models that need their own code: CheXagent, CheXagent-2 and MAIRA-2, each called as its card says."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.image_codec import encode_png, to_uint8
from cxrlab.core.model_interfaces import Capabilities, Generated
from cxrlab.core.out_of_memory import raise_if_out_of_memory
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.local_files import first_line, locate
from cxrlab.models.prompts import Prompts, load_prompts
from cxrlab.models.tokenization import BREAK, escape

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Image
    from cxrlab.models.baselines import Library


class ForeignModel(ABC):
    """A report model whose folder brings Python files, which run with the user's rights once they are trusted.

    It answers greedily and one image at a time, without gradients or log-probabilities.

    Attributes:
        KIND: Of its name, `KIND:FOLDER`.
        READER: Auto class of transformers that opens what prepares its inputs.
        MAX_NEW_TOKENS: Longest answer, as its card has it.
    """

    KIND: ClassVar[str]
    READER: ClassVar[str] = "AutoProcessor"
    MAX_NEW_TOKENS: ClassVar[int]

    def __init__(self, model: Any, reader: Any, prompts: Prompts, argument: str) -> None:
        self.model, self.reader, self.prompts = model, reader, prompts
        self.name = f"{self.KIND}:{argument}"
        self.capabilities = Capabilities()

    @classmethod
    def load(cls, argument: str, library: Library | None = None, loading: LoadSettings | None = None) -> ForeignModel:
        """Open a folder or hub id; `library` is not used."""
        require("models")
        import transformers

        from cxrlab.models.hf.checkpoint import device_of, dtype_of

        settings = loading or LoadSettings()
        folder = locate(argument, settings)
        files = sorted(file.name for file in folder.glob("*.py"))
        if not settings.trust_remote_code:
            raise ConfigError(
                f"{folder} needs more than transformers: it would run {', '.join(files) or 'its own code'} on this "
                "machine with your rights; read them, and give --loading.trust-remote-code if you trust them."
            )
        prompts = load_prompts(settings.prompts or "chexagent/1")
        common = {"local_files_only": not settings.download, "trust_remote_code": True}
        loader: Any = transformers.AutoModelForCausalLM
        device = device_of(settings)
        try:
            reader = getattr(transformers, cls.READER).from_pretrained(folder, **common)
            model = loader.from_pretrained(folder, dtype=dtype_of(settings, device), **common).to(device).eval()
        except Exception as error:  # code of others may fail in any way
            raise_if_out_of_memory(error, folder)
            raise DataError(
                f"{folder} cannot be opened with its own code as {cls.KIND} ({first_line(error)}); it may need another "
                "version of transformers than this one."
            ) from error
        return cls(model, reader, prompts, argument)

    @property
    def parameter_count(self) -> int:
        """Number of weights."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def generate(self, images: Sequence[Image], indications: Sequence[str | None] | None = None) -> list[Generated]:
        """One answer per image, in order."""
        import torch

        reasons = list(indications) if indications is not None else [None] * len(images)
        if len(reasons) != len(images):
            raise DataError(f"{len(images)} images came with {len(reasons)} indications; give one per image.")
        with torch.no_grad():
            return [self.answer(to_uint8(image), reason) for image, reason in zip(images, reasons, strict=True)]

    @abstractmethod
    def answer(self, image: Any, indication: str | None) -> Generated:
        """The report for one 8-bit image [H, W] or [H, W, 3]."""

    def _plain(self, text: str) -> str:
        """The text with a space inside special tokens: in an indication they could name another image file to open."""
        return escape(getattr(self.reader, "tokenizer", self.reader), text).replace(BREAK, " ")

    def _continue(self, inputs: Any) -> list[int]:
        """Ids of the answer to `inputs`, without those of the prompt if the model repeats them."""
        moved = {
            name: value.to(self.model.device, self.model.dtype if value.is_floating_point() else None)
            for name, value in dict(inputs).items()
        }
        found = self.model.generate(**moved, do_sample=False, max_new_tokens=self.MAX_NEW_TOKENS)[0].tolist()
        prompt = moved["input_ids"][0].tolist()
        return list(found[len(prompt) :] if found[: len(prompt)] == prompt else found)


def _rgb(image: Any) -> Any:
    from PIL import Image as Pillow

    return Pillow.fromarray(image).convert("RGB")


class CheXagent(ForeignModel):
    """CheXagent (8B): a processor of image and text, and a conversation of USER and ASSISTANT."""

    KIND, MAX_NEW_TOKENS = "chexagent", 512
    USAGES = MappingProxyType({"chexagent:FOLDER": "CheXagent (8B) with its own code (--loading.trust-remote-code)"})

    def answer(self, image: Any, indication: str | None) -> Generated:
        """See `ForeignModel.answer`."""
        text = f" USER: <s>{self._plain(self.prompts.ask(indication))} ASSISTANT: <s>"
        ids = self._continue(self.reader(images=[_rgb(image)], text=text, return_tensors="pt"))
        return Generated(self.reader.tokenizer.decode(ids, skip_special_tokens=True).strip(), tokens=len(ids))


class CheXagent2(ForeignModel):
    """CheXagent-2 (3B): a tokenizer that names image files in the text, which the model opens by itself."""

    KIND, READER, MAX_NEW_TOKENS = "chexagent-2", "AutoTokenizer", 512
    USAGES = MappingProxyType({"chexagent-2:FOLDER": "CheXagent-2 with its own code (--loading.trust-remote-code)"})

    def answer(self, image: Any, indication: str | None) -> Generated:
        """See `ForeignModel.answer`; the image lies in a temporary file meanwhile."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "image.png"
            file.write_bytes(encode_png(image))
            prompt = self._plain(self.prompts.ask(indication))
            query = self.reader.from_list_format([{"image": str(file)}, {"text": prompt}])
            turns = [{"from": "system", "value": "You are a helpful assistant."}, {"from": "human", "value": query}]
            inputs = self.reader.apply_chat_template(
                turns, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            ids = self._continue({"input_ids": inputs["input_ids"]})
        return Generated(self.reader.decode(ids, skip_special_tokens=True).strip(), tokens=len(ids))


class Maira2(ForeignModel):
    """MAIRA-2: a processor that writes the prompt from the parts of a study; here the frontal image and indication."""

    KIND, MAX_NEW_TOKENS = "maira-2", 300
    USAGES = MappingProxyType({"maira-2:FOLDER": "MAIRA-2 with its own code (--loading.trust-remote-code)"})

    def answer(self, image: Any, indication: str | None) -> Generated:
        """See `ForeignModel.answer`; no lateral or prior image, technique, comparison or prior report is given."""
        absent = ("current_lateral", "prior_frontal", "technique", "comparison", "prior_report")
        inputs = self.reader.format_and_preprocess_reporting_input(
            current_frontal=_rgb(image),
            indication=self._plain(" ".join((indication or "").split())) or None,
            **dict.fromkeys(absent),
            return_tensors="pt",
            get_grounding=False,
        )
        ids = self._continue(inputs)
        text = self.reader.decode(ids, skip_special_tokens=True).lstrip()
        return Generated(self.reader.convert_output_to_plaintext_or_grounded_sequence(text).strip(), tokens=len(ids))
