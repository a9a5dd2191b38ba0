"""The main job on one machine: `python -m peercached.demo` (or `make demo`).

Three daemons share the pages of a replayed workload while every byte is checked:

    workload.py  conversations made up by seed      trace.py    requests from a trace file
    content.py   what the bytes of a page must be   worker.py   one inference worker
    cluster.py   daemons as processes               replay.py   who runs what, in which order
    belady.py    the best hit rate possible         report.py   the table at the end
"""
