"""The models that ship with the package: small weights trained on phantoms, scenes and narrated text.

    general    a LLaVA that describes scenes and knows the words of reports, but has seen no chest
    encoder    a contrastive encoder of phantoms (stage 1)
    reporter   an adapter that makes a report model of the encoder's encoder and the general language model (stages 2,
    3) aligned    what `reporter` stands on: that encoder, that language model, and the projector between them (stage 2)
    outsider   a LLaVA of another encoder, language model and tokenizer, which has seen scenes and read lexicon B alone

Four folders hold weights; `aligned` holds a projector alone and is put together from its neighbours once, in the
user's cache. `experiments/build_builtin.py` trains all of them anew.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from cxrlab.core.environment import require
from cxrlab.core.errors import DataError, RunError, UnknownName, did_you_mean
from cxrlab.core.files import make_folder, sha256_of
from cxrlab.core.folders import CHECKSUMS, find_damage, write_folder
from cxrlab.models.dual_encoder import DualEncoder
from cxrlab.models.hf.model import HfModel
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.local_files import verify_checksums
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
    return _put_together(WEIGHTS) if name == ALIGNED else folder


def has_weights(name: str) -> bool:
    """Whether this copy holds the weights of a built-in model: a copy of the source need not."""
    folder = WEIGHTS / name
    return (folder / MODEL_CARD).is_file() and any(folder.glob("*.safetensors"))


def cache_folder() -> Path:
    """Where what is put together is kept: CXRLAB_CACHE, else the user's cache folder."""
    named = os.environ.get("CXRLAB_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else home / "cxrlab"


def _told(name: str, does: str) -> str:
    """What a list of models says."""
    return does if has_weights(name) else f"{does} (no weights in this copy)"


class Builtin:
    """Built-in report models by name; see `HfModel`."""

    USAGES = MappingProxyType(
        {
            "builtin:reporter": _told(REPORTER, "a small report model of phantoms, trained in three stages"),
            "builtin:general": _told(GENERAL, "a small model that describes pictures and has seen no chest"),
            "builtin:outsider": _told(OUTSIDER, "a small model of another family that describes pictures"),
        }
    )

    @classmethod
    def load(cls, argument: str, library: Library | None = None, loading: LoadSettings | None = None) -> HfModel:
        """Open a built-in report model; it needs no library."""
        require("models")
        if argument == ENCODER:
            raise UnknownName("builtin:encoder places images beside reports and writes none; use builtin:reporter.")
        return HfModel.load(str(builtin_folder(argument)), library, loading, name=f"builtin:{argument}")


class BuiltinEncoder:
    """The built-in contrastive encoder."""

    USAGES = MappingProxyType({"builtin:encoder": _told(ENCODER, "a small contrastive encoder of phantoms")})

    @classmethod
    def load(cls, argument: str, loading: LoadSettings) -> DualEncoder:
        """Open the built-in encoder."""
        from cxrlab.models.dual_encoder import open_encoder

        require("models")
        if argument != ENCODER:
            raise UnknownName(f"builtin:{argument} is no encoder; use builtin:encoder.")
        return DualEncoder(f"builtin:{argument}", open_encoder(builtin_folder(argument), loading))


def _put_together(weights: Path) -> Path:
    """The aligned model as a whole folder; made once for these very weights, by whoever comes first."""
    made_of = [weights / ENCODER / "model.safetensors", weights / GENERAL / "model.safetensors"]
    made_of.append(weights / ALIGNED / PROJECTOR)
    for file in made_of:
        if not file.is_file():
            raise DataError(f"this copy of cxrlab has no weights for builtin:{ALIGNED}; {file} is missing.")
    verify_checksums(weights / ALIGNED)
    out = cache_folder() / "-".join([ALIGNED, *(sha256_of(file)[:12] for file in made_of)])
    if _whole(out):
        return out
    try:
        make_folder(out.parent)
    except RunError as error:
        raise RunError(
            f"builtin:{ALIGNED} is put together once and kept, and this failed: {error} Set CXRLAB_CACHE to a folder "
            "that you may write to."
        ) from error
    shutil.rmtree(out, ignore_errors=True)  # it lost files or was changed; it is made of verified ones again
    try:
        write_folder(out, lambda folder: _write_aligned(weights, folder))
        # The shipped weights hold nothing of a patient, and users may share the cache.
        for file in out.iterdir():
            file.chmod(0o644)
        out.chmod(0o755)
        return out
    except RunError:
        if _whole(out):  # another process was faster
            return out
        raise


def _whole(folder: Path) -> bool:
    """Whether all files are there and as they were written."""
    return (folder / CHECKSUMS).is_file() and find_damage(folder) is None


def _write_aligned(weights: Path, folder: Path) -> None:
    from safetensors.torch import load_file

    from cxrlab.models.components import load_language_model, load_vision_encoder
    from cxrlab.models.local_files import quiet_loading
    from cxrlab.models.random_init import assemble_llava

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
