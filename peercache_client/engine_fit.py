"""Whether an adapter of ours fits the engine that imports it.

Engines are released every few weeks. An adapter works with a release that it does not know if all
names that it needs are there, and says so once. If one is missing, the engine ends with a sentence
that names it, instead of a traceback from its middle.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from peercache_client.notes import say

# The releases that the adapters were tested with, newest first.
TESTED: Final = {
    "lmcache": ("0.5.7rc2", "0.5.6", "0.5.5"),
    "sglang": ("0.5.23", "0.5.22", "0.5.21"),
    "vllm": ("0.33.0", "0.32.0", "0.31.0"),
}


class DoesNotFit(SystemExit):
    """Ends the engine's process with a sentence and without a traceback."""


@contextmanager
def importing(engine: str, package: str) -> Iterator[None]:
    """Surrounds the import of the adapter into `package`. Raises DoesNotFit."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").split(".")[0] != engine or engine not in sys.modules:
            raise
        raise DoesNotFit(_sentence(engine, package, f"{engine} lacks it: {error}")) from None
    for name, adapter in vars(sys.modules[package]).items():
        if inspect.isabstract(adapter) and adapter.__module__.split(".")[0] != engine:
            missing = ", ".join(sorted(adapter.__abstractmethods__))
            raise DoesNotFit(_sentence(engine, package, f"{name} lacks {missing}"))
    if (version := _version(engine)) not in TESTED[engine]:
        tested = ", ".join(TESTED[engine])
        say(
            logging.WARNING,
            f"{package} was tested with {engine} {tested}, and this is {version}. It has all that "
            "is needed, so it is used",
        )


def _sentence(engine: str, package: str, why: str) -> str:
    return (
        f"{package} does not fit {engine} {_version(engine)}: {why}. Tested: {engine} "
        f"{', '.join(TESTED[engine])}. Install another peercache_client, or {engine}"
    )


def _version(engine: str) -> str:
    return str(getattr(sys.modules[engine], "__version__", "of no version"))
