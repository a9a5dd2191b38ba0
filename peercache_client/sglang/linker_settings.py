"""Our part of `--unified-cache-external-linker-config`: its `linker_extra_config`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from peercache_client.engine_settings import JudgingSettings

_WHERE: Final = "linker_extra_config of --unified-cache-external-linker-config"
_LAYOUTS: Final = ("page_first", "page_first_direct")
_STAGING_BYTES_MAX: Final = 1 << 36
_OWN: Final = ("layout", "staging_bytes", "direct")


@dataclass(frozen=True)
class LinkerSettings(JudgingSettings):
    layout: str = _LAYOUTS[0]  # of the nodes with HiCache that share pages
    staging_bytes: int = 0  # of host memory for copies; 0: as much as the pools need
    direct: bool = False  # the daemon copies from and to the device itself

    # SGLang ends a request if its load fails, so no load is given up.
    KEYS_OF_JUDGING: ClassVar[frozenset[str]] = frozenset({"prefill_tokens_per_s"})

    @classmethod
    def parse(cls, extra_config: Mapping[str, Any] | None) -> LinkerSettings:
        """ValueError for an unknown key or an invalid value."""
        given = dict(extra_config or {})
        own = {key: given.pop(key) for key in _OWN if key in given}
        layout = own.get("layout", cls.layout)
        if layout not in _LAYOUTS:
            raise ValueError(f"layout is {layout!r}: {' or '.join(_LAYOUTS)}")
        staging_bytes = own.get("staging_bytes", cls.staging_bytes)
        if type(staging_bytes) is not int or not 0 <= staging_bytes <= _STAGING_BYTES_MAX:
            raise ValueError(
                f"staging_bytes is {staging_bytes!r}: a number of bytes up to {_STAGING_BYTES_MAX}"
            )
        direct = own.get("direct", cls.direct)
        if type(direct) is not bool:
            raise ValueError(f"direct is {direct!r}: true or false")
        return replace(cls.checked(given, _WHERE, frozenset(_OWN)), **own)
