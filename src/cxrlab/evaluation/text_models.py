"""Language models by name, for every role: what they may be shown is checked before anything connects."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from cxrlab.core.asking import Asking
from cxrlab.core.budget import Budget
from cxrlab.core.connection import check_encrypted
from cxrlab.core.egress import Shown, all_synthetic, check_egress
from cxrlab.core.errors import CxrlabError
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.names import load_text_model
from cxrlab.models.text_model_cache import CachedTextModel


def open_text_model(
    name: str,
    asking: Asking,
    shown: Iterable[Shown],
    folder: Path | None = None,
    flag: str = "--asking.connection",
    budget: Budget | None = None,
) -> CachedTextModel:
    """The text model of this name, asked everything once.

    Args:
        name: Such as `hf:FOLDER` or `http://127.0.0.1:8000/v1#MODEL`.
        asking: Cache, limit and connection.
        shown: What its prompts will hold; patients' data leave this machine only with leave.
        folder: Run folder, in which requests and answers are kept; None keeps them in memory, and then nothing of a
            patient's leaves this machine.
        flag: Name of the connection's flags, for messages.
        budget: The purse, where several models of a run share one; one of its own when None.
    """
    shown = tuple(shown)
    check_egress(name, shown, asking.connection.may_leave, flag, kept=folder is not None)
    check_encrypted(name, asking.connection, flag)
    loading = LoadSettings(**dataclasses.asdict(asking.loading))
    try:
        model = load_text_model(name, asking.connection, loading, synthetic=all_synthetic(shown))
    except CxrlabError as error:
        # Messages of models name the flags of commands that load one model; here they stand below those of asking.
        group = flag.removesuffix(".connection")
        error.args = (str(error).replace("--loading.", f"{group}.loading."), *error.args[1:])
        raise
    return CachedTextModel(model, asking, folder, budget)
