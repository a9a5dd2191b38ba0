"""The demo: the daemon's main job on one machine, with `python -m peercached.demo` or `make demo`.

Three daemons share the pages of a replayed workload, and every byte is checked:

    workload.py  seeded random conversations        trace.py    requests from a trace file
    content.py   a page's expected bytes            worker.py   one inference worker
    cluster.py   daemons as processes               replay.py   assigns requests to workers
    belady.py    the best hit rate possible         report.py   the table at the end
"""
