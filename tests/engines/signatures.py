"""Reads classes, functions and fields from the source of a package, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What a name stands for: a class with its members, a function's signature, or one of these.
VALUE, MODULE, COMPILED = "value", "module", "compiled"
# Imports of imports that are followed.
_STEPS_MAX = 8


class Gone(LookupError):
    """The package has no such name."""


class Source:
    """The packages below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parsed: dict[Path, ast.Module] = {}

    def describe(self, name: str) -> Any:
        """`name`: with dots. The members of a class, as {member: text}, those of its bases in the
        same packages included; or the text of anything else. Raises Gone."""
        return self._describe(name, _STEPS_MAX)

    def _describe(self, name: str, steps: int) -> Any:
        module, rest = self._split(name)
        if module is None:
            return COMPILED
        if not rest:
            return MODULE
        found = next((node for at, node in _named(module.body) if at == rest[0]), None)
        if found is None or steps == 0:
            raise Gone(name)
        if isinstance(found, ast.ImportFrom):
            return self._describe(
                ".".join((self._origin(name, found, rest[0]), *rest[1:])), steps - 1
            )
        if isinstance(found, ast.ClassDef):
            members = self._members(name.removesuffix(f".{'.'.join(rest)}"), found, steps - 1)
            if len(rest) == 1:
                return members
            if rest[1] not in members:
                raise Gone(name)
            return members[rest[1]]
        return _text(found)

    def _split(self, name: str) -> tuple[ast.Module | None, list[str]]:
        """The longest module in a name, None if it is compiled, and what follows."""
        words = name.split(".")
        for end in range(len(words), 0, -1):
            path = self._folder.joinpath(*words[:end])
            for source in (path.with_suffix(".py"), path / "__init__.py"):
                if source.is_file():
                    return self._parse(source), words[end:]
            if list(path.parent.glob(f"{path.name}.*so")):
                return None, words[end:]
        raise Gone(name)

    def _parse(self, path: Path) -> ast.Module:
        if path not in self._parsed:
            self._parsed[path] = ast.parse(path.read_text())
        return self._parsed[path]

    def _origin(self, name: str, node: ast.ImportFrom, imported: str) -> str:
        """Where `from X import Y as imported`, found while `name` was looked up, takes it from."""
        real = next(a.name for a in node.names if imported in (a.asname, a.name))
        package = node.module or ""
        if node.level:
            words = name.split(".")
            depth = max(
                end for end in range(1, len(words)) if self._folder.joinpath(*words[:end]).is_dir()
            )
            package = ".".join((*words[: depth + 1 - node.level], *filter(None, [package])))
        return f"{package}.{real}"

    def _members(self, module: str, node: ast.ClassDef, steps: int) -> dict[str, str]:
        members: dict[str, str] = {}
        for base in node.bases:
            try:
                inherited = self._describe(f"{module}.{ast.unparse(base)}", steps)
            except Gone:
                continue  # of Python, or of another package
            members |= inherited if isinstance(inherited, dict) else {}
        return members | {
            name: _text(child)
            for name, child in _named(node.body)
            if name == "__init__" or not name.startswith("_")
        }


def _named(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Lists the names that these statements define, also under `if` and `try`."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        yield name.id, node
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, node
        elif isinstance(node, ast.If):
            yield from _named([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _named([*node.body, *(s for h in node.handlers for s in h.body)])


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        marks = [ast.unparse(d).split(".")[-1] for d in node.decorator_list]
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return " ".join((*marks, f"({ast.unparse(node.args)}){returns}"))
    if isinstance(node, ast.AnnAssign):
        default = " = ..." if node.value else ""
        return f"{ast.unparse(node.annotation)}{default}"
    return VALUE
