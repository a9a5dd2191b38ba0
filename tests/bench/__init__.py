"""The measurements behind docs/performance.md that `peercache-bench` lacks."""
