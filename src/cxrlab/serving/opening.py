"""From settings to a service that is ready: everything that can be refused is refused before a port is opened."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.core.addresses import is_address, parse_address
from cxrlab.core.config import to_yaml
from cxrlab.core.connection import check_encrypted
from cxrlab.core.egress import Shown, check_egress, check_one_keeper
from cxrlab.core.files import make_folder, write_text
from cxrlab.core.install import require
from cxrlab.serving.accounts import Accounts, anybody
from cxrlab.serving.config import ServeConfig
from cxrlab.serving.key_file import read_accounts

if TYPE_CHECKING:
    from cxrlab.core.protocols import ImageToText, TextModel
    from cxrlab.serving.logs import Journal
    from cxrlab.serving.service import Guards, Service

CONFIG, BOOKS, GUARD_FOLDER = "config.yaml", "books.sqlite", "guard"
IMAGES = Shown("images of whoever asks", synthetic=False)
TEXTS = Shown("text of whoever asks", synthetic=False)


def open_service(
    config: ServeConfig,
    out: Path,
    *,
    model: ImageToText | None = None,
    text: TextModel | None = None,
    guard: Guards | None = None,
    journal: Journal | None = None,
    images: Shown = IMAGES,
) -> Service:
    """The service that these settings describe.

    Args:
        config: Settings.
        out: Folder of the books, the settings and the guard's memory, kept over restarts.
        model: The report model, where somebody has loaded it already.
        text: The text model likewise.
        guard: The guard likewise.
        journal: The log; the error stream and `config.log_file` when left out.
        images: What the model will be shown, where whoever asks is known.
    """
    require("serve")
    _check_addresses(config, images)
    everybody = anybody(config.allowance)
    keyed = read_accounts(config.keys, config.allowance) if config.keys is not None else []

    from cxrlab.serving.askers import Askers
    from cxrlab.serving.books import Books
    from cxrlab.serving.logs import Journal
    from cxrlab.serving.service import Service

    write_text(make_folder(out) / CONFIG, to_yaml(config))  # who allowed what to leave stands in it
    journal = journal or Journal(sys.stderr, config.log_file)
    askers = Askers(
        model if model is not None else _load_model(config, images),
        text if text is not None else _load_text(config),
        config.loading.connection.concurrency,
    )
    if guard is None and config.guard:
        from cxrlab.serving.guard import open_guard

        guard = open_guard(config.guarding, out / GUARD_FOLDER, config.loading)
    books = Books(out / BOOKS)
    return Service(config, askers, Accounts(keyed, everybody), books, journal, guard, synthetic=images.synthetic)


def _check_addresses(config: ServeConfig, images: Shown) -> None:
    """Refuse models elsewhere that may not be asked, before anything of their names is written down."""
    connection = config.loading.connection
    for name, shown in ((config.model, images), (config.text, TEXTS)):
        if name is not None and is_address(name):
            parse_address(name)
            check_egress(name, [shown], connection.may_leave)
            check_encrypted(name, connection)
    check_one_keeper([name for name in (config.model, config.text) if name], connection.key_variable)


def _load_model(config: ServeConfig, images: Shown) -> ImageToText:
    from cxrlab.evaluation.loading import open_model

    return open_model(config.model, config.loading, [images])


def _load_text(config: ServeConfig) -> TextModel | None:
    from cxrlab.models.names import load_text_model

    return None if config.text is None else load_text_model(config.text, config.loading.connection, config.loading)
