"""A new view is put in force step by step."""

from types import SimpleNamespace
from typing import Any, cast

from peercached.directory.placement import Change
from peercached.membership import View
from peercached.view_changes import ViewChanges


def test_no_miss_is_final_before_the_engine_gets_another_ring() -> None:
    steps: list[str] = []
    view = View.of(3, ())

    def new_ring(view: View, now: float, settled: bool) -> Change:
        steps.append("new ring")
        return Change(view)

    owner_side = SimpleNamespace(
        final=lambda number: True, view_changes=lambda: steps.append("nothing is final")
    )
    placement = SimpleNamespace(view=view, apply=new_ring)
    follower = SimpleNamespace(view_changed=lambda change: steps.append("told"))
    ViewChanges(cast(Any, placement), cast(Any, owner_side), [follower]).apply(view)
    assert steps == ["nothing is final", "new ring", "told"]
