"""The measurements behind docs/performance.md and docs/scaling.md that `peercache-bench` lacks."""
