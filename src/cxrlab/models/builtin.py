"""The models that ship with the package: small weights trained on phantoms, scenes and narrated text.

    general    a LLaVA trained on scenes and on text of reports, without any image of a chest
    encoder    a contrastive encoder of phantoms (stage 1)
    aligned    the vision encoder of `encoder`, the language model of `general`, and a projector (stage 2)
    reporter   an adapter on `aligned`: a report model of phantoms (stage 3)
    outsider   a LLaVA of another model family, trained on scenes and on reports in lexicon B

Four folders hold weights. `aligned` holds a projector only and is assembled once, in the user's cache.
`experiments/build_builtin.py` trains all of them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from cxrlab.core.atomic_folders import CHECKSUMS, find_damage, write_folder
from cxrlab.core.environment import require
from cxrlab.core.errors import DataError, RunError, UnknownName, did_you_mean
from cxrlab.core.files import make_folder, sha256_of
from cxrlab.models.dual_encoder import DualEncoder
from cxrlab.models.hf.model import HfModel
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.local_files import quiet_loading, verify_checksums
from cxrlab.models.model_card import MODEL_CARD, read_model_card, write_model_card

if TYPE_CHECKING:
    from cxrlab.models.baselines import Library

WEIGHTS = Path(__file__).parent / "weights"
GENERAL, ENCODER, ALIGNED, REPORTER, OUTSIDER = "general", "encoder", "aligned", "reporter", "outsider"
NAMES = (GENERAL, ENCODER, ALIGNED, REPORTER, OUTSIDER)
PROJECTOR = "projector.safetensors"


def builtin_folder(name: str) -> Path:
    """The folder of a built-in model, one of `NAMES`, in the layout of transformers."""
    if name not in NAMES:
        raise UnknownName(
            f"there is no built-in model '{name}'.{did_you_mean(name, NAMES)} There are: {', '.join(NAMES)}."
        )
    folder = WEIGHTS / name
    if not has_weights(name):
        raise DataError(f"this copy of cxrlab has no weights for builtin:{name}; {folder} is missing or incomplete.")
    return assembled_folder(WEIGHTS) if name == ALIGNED else folder


def has_weights(name: str) -> bool:
    """Whether this installation has the weights of a built-in model; a source checkout may not."""
    folder = WEIGHTS / name
    return (folder / MODEL_CARD).is_file() and any(folder.glob("*.safetensors"))


def cache_folder() -> Path:
    """Folder for assembled models: CXRLAB_CACHE, else the user's cache folder."""
    named = os.environ.get("CXRLAB_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else home / "cxrlab"


def description(name: str, text: str) -> str:
    """The text for a list of models, with a note if this copy has no weights."""
    return text if has_weights(name) else f"{text} (no weights in this copy)"


class Builtin:
    """Built-in report models by name; see `HfModel`."""

    USAGES = MappingProxyType(
        {
            "builtin:reporter": description(REPORTER, "a small report model of phantoms, trained in three stages"),
            "builtin:general": description(GENERAL, "a small model that describes pictures and has seen no chest"),
            "builtin:outsider": description(OUTSIDER, "a small model of another family that describes pictures"),
        }
    )

    @classmethod
    def load(cls, argument: str, library: Library | None = None, loading: LoadSettings | None = None) -> HfModel:
        """Open a built-in report model; `library` is not used."""
        require("models")
        if argument == ENCODER:
            raise UnknownName("builtin:encoder is an encoder and generates no reports; use builtin:reporter.")
        return HfModel.load(str(builtin_folder(argument)), library, loading, name=f"builtin:{argument}")


class BuiltinEncoder:
    """The built-in contrastive encoder."""

    USAGES = MappingProxyType({"builtin:encoder": description(ENCODER, "a small contrastive encoder of phantoms")})

    @classmethod
    def load(cls, argument: str, loading: LoadSettings) -> DualEncoder:
        """Open the built-in encoder."""
        from cxrlab.models.dual_encoder import open_encoder

        require("models")
        if argument != ENCODER:
            raise UnknownName(f"builtin:{argument} is not an encoder; use builtin:encoder.")
        return DualEncoder(f"builtin:{argument}", open_encoder(builtin_folder(argument), loading))


def assembled_folder(weights: Path) -> Path:
    """The folder of the aligned model, assembled once for these weights by the first process that needs it."""
    from safetensors.torch import load_file

    from cxrlab.models.model_parts import load_language_model, load_vision_encoder
    from cxrlab.models.random_init import assemble_llava

    sources = [weights / ENCODER / "model.safetensors", weights / GENERAL / "model.safetensors"]
    sources.append(weights / ALIGNED / PROJECTOR)
    for file in sources:
        if not file.is_file():
            raise DataError(f"this copy of cxrlab has no weights for builtin:{ALIGNED}; {file} is missing.")
    verify_checksums(weights / ALIGNED)
    out = cache_folder() / "-".join([ALIGNED, *(sha256_of(file)[:12] for file in sources)])
    if _is_complete(out):
        return out
    try:
        make_folder(out.parent)
    except RunError as error:
        raise RunError(
            f"builtin:{ALIGNED} is assembled once and cached, and this failed: {error} Set CXRLAB_CACHE to a folder "
            "that you may write to."
        ) from error
    shutil.rmtree(out, ignore_errors=True)  # it is incomplete or was changed

    def assemble(folder: Path) -> None:
        vision_encoder = load_vision_encoder(f"hf:{weights / ENCODER}", dtype="bfloat16")
        language = load_language_model(f"hf:{weights / GENERAL}", dtype="bfloat16")
        model, processor = assemble_llava(
            vision_encoder.model, language.model, language.tokenizer, vision_encoder.image_processor, seed=0
        )
        model.model.multi_modal_projector.load_state_dict(load_file(weights / ALIGNED / PROJECTOR))
        with quiet_loading():
            model.to(vision_encoder.model.dtype).save_pretrained(folder)
        processor.save_pretrained(folder)
        card = read_model_card(weights / ALIGNED)
        assert card is not None
        write_model_card(card, folder)

    try:
        write_folder(out, assemble)
        # The shipped weights contain no patient data, and users may share the cache.
        for file in out.iterdir():
            file.chmod(0o644)
        out.chmod(0o755)
        return out
    except RunError:
        if _is_complete(out):  # another process was faster
            return out
        raise


def _is_complete(folder: Path) -> bool:
    return (folder / CHECKSUMS).is_file() and find_damage(folder) is None
