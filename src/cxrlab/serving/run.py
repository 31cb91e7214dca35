"""A server as a process: from settings to the signal that ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from cxrlab.core.files import make_folder
from cxrlab.core.install import require
from cxrlab.core.locks import take_lock
from cxrlab.core.progress import silenced
from cxrlab.core.streams import Remarks, deliver
from cxrlab.serving.config import ServeConfig

INTERRUPTED = 130  # what the program gives back for Ctrl-C


def run(config: ServeConfig, out: Path) -> None:
    """Serve until a signal; says where on the output.

    Args:
        config: Settings.
        out: Folder of the server's books and settings.

    Raises:
        KeyboardInterrupt: After the orderly end, where Ctrl-C asked for it.
    """
    require("serve")
    from cxrlab.serving.logs import Journal, silence_libraries
    from cxrlab.serving.opening import open_service
    from cxrlab.serving.server import Server

    with take_lock(make_folder(out)):
        journal = Journal(sys.stderr, config.log_file)
        silence_libraries(journal)
        # A program that reads the log expects JSON on every line; a person may see how far the guard has come.
        with contextlib.nullcontext() if Remarks(sys.stderr).isatty() else silenced():
            service = open_service(config, out, journal=journal)
        try:
            server = Server(service)
        except BaseException:
            service.close()
            raise
        told = server.run(lambda: deliver(f"serving {' and '.join(service.names)} at {server.url}"))
        if service.batcher.alive:
            # The interpreter would wait for the threads of a model that does not answer.
            os._exit(INTERRUPTED if told == signal.SIGINT else 0)
        if told == signal.SIGINT:
            raise KeyboardInterrupt
