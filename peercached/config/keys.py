"""The schema as data: the facts about each key for options, messages and the document."""

from __future__ import annotations

import typing
from dataclasses import dataclass

from annotated_types import Ge, Le

from peercached.config.schema import Config
from peercached.config.values import SIZE_FORMS, format_size
from peercached.environment import ENVIRONMENT_PREFIX


@dataclass(frozen=True)
class Key:
    """One key. `kind` is one of: size, integer, number, boolean, choice, list, text."""

    name: str
    kind: str
    default: str  # shown to users, in Markdown
    unit: str
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    section: str
    what: str
    when: str
    live: bool  # can change with a reload
    shared: bool  # equal on all nodes, compared when a node joins

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def accepts(self) -> str:
        """The valid values in words, for messages, to follow "give"."""
        if self.kind == "choice":
            return " or ".join(f'"{choice}"' for choice in self.choices)
        if self.kind == "boolean":
            return "true or false (without quotes in a file)"
        if self.kind == "list":
            return "a list of texts, or one text with commas"
        if self.kind == "text":
            return "text (in quotes in a file)"
        if self.kind == "size":
            return f"{SIZE_FORMS}, from {self._bound(self.minimum)} to {self._bound(self.maximum)}"
        noun = "a whole number" if self.kind == "integer" else "a number"
        unit = f" {self.unit}" if self.unit else ""
        return f"{noun} from {self._bound(self.minimum)} to {self._bound(self.maximum)}{unit}"

    def _bound(self, bound: float | None) -> str:
        if bound is None:
            return "any"
        return format_size(int(bound)) if self.kind == "size" else f"{bound:.12g}"


# Evaluated once: that takes milliseconds, and each start of a command needs it.
_HINTS = typing.get_type_hints(Config, include_extras=True)


def _kind_and_choices(name: str) -> tuple[str, tuple[str, ...]]:
    hint = _HINTS[name]
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) is typing.Literal:
        return "choice", typing.get_args(hint)
    if typing.get_origin(hint) is list:
        return "list", ()
    kind = {bool: "boolean", int: "integer", float: "number", str: "text"}[hint]
    return ("size" if name.endswith("_size") else kind), ()


def _default_text(kind: str, default: object) -> str:
    if default in ("", []):
        return "empty"
    if kind == "size":
        assert isinstance(default, int)
        return f"`{format_size(default)}`"
    return f"`{str(default).lower() if kind == 'boolean' else default}`"


def _key(name: str) -> Key:
    field = Config.model_fields[name]
    extra = field.json_schema_extra
    assert isinstance(extra, dict)
    kind, choices = _kind_and_choices(name)
    minimum = next((float(m.ge) for m in field.metadata if isinstance(m, Ge)), None)  # type: ignore[arg-type]
    maximum = next((float(m.le) for m in field.metadata if isinstance(m, Le)), None)  # type: ignore[arg-type]
    return Key(
        name=name,
        kind=kind,
        default=str(extra["default_text"]) or _default_text(kind, field.default),
        unit=str(extra["unit"]),
        minimum=minimum,
        maximum=maximum,
        choices=choices,
        section=str(extra["section"]),
        what=str(field.description),
        when=str(extra["when"]),
        live=bool(extra["live"]),
        shared=bool(extra["shared"]),
    )


KEYS: dict[str, Key] = {name: _key(name) for name in Config.model_fields}
"""All keys by name, in the order of the schema."""
