"""The rules that an adapter must keep to fit a release of its engine."""

from __future__ import annotations

import ast

from engines import touched
from engines.record import Record, answers


def broken(engine: str, record: Record) -> list[str]:
    """One line for each rule that does not hold."""
    later = answers(engine, "later")
    lines = [
        f"lacks     {name}"
        for name in touched.names(engine)
        if not record.has(name) and not {name, name.rpartition(".")[0]} & later.keys()
    ]
    for ours in touched.adapters(engine):
        members = record.members(ours.base)
        # The engine constructs ours with arguments of its own choice, which our tests pass.
        theirs = {n: text for n, text in members.items() if "(" in text and n != "__init__"}
        told = answers(engine, ours.base)
        for name, text in sorted(theirs.items()):
            at = f"{ours.base.rpartition('.')[2]}.{name} {text}"
            if name in ours.methods:
                if problem := _refuses(ours.methods[name], text):
                    lines.append(f"mismatch  {at}: {ours.name} {problem}")
                if name in told:
                    lines.append(f"answered  {at}: {ours.name} has it, so answers.toml must not")
            elif "abstractmethod" in text:
                lines.append(f"abstract  {at}: {ours.name} lacks it")
            elif name not in told:
                lines.append(
                    f"no answer {at}: {ours.name} lacks it, and answers.toml has no reason"
                )
        lines += [f"answered  {ours.base}.{name} is gone" for name in told.keys() - theirs.keys()]
    return lines


def _refuses(ours: ast.arguments, text: str) -> str:
    """How a call for that signature would fail with ours; empty: it would not."""
    head = text[text.index("(") :]
    function = ast.parse(f"def f{head}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    theirs = function.args
    have, want = ([a.arg for a in [*x.posonlyargs, *x.args]] for x in (ours, theirs))
    names = {*have, *(a.arg for a in ours.kwonlyargs)}
    if not ours.vararg and (extra := want[len(have) :]):
        return f"takes no {', '.join(extra)}"
    if wrong := [f"{b} for {a}" for a, b in zip(have, want, strict=False) if a != b]:
        return f"would get {', '.join(wrong)}"
    if not ours.kwarg and (missing := {a.arg for a in theirs.kwonlyargs} - names):
        return f"takes no {', '.join(sorted(missing))}"
    needed = have[len(want) : len(have) - len(ours.defaults)]
    return f"needs {', '.join(needed)}" if needed else ""
