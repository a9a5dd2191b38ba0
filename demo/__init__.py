"""The demo: the daemon's main job on one machine, with `make demo`.

Three daemons share the pages of a replayed workload, and every byte is checked:

    workload.py  seeded random conversations        trace.py    requests from a trace file
    scenario.py  the kill in the middle             worker.py   one inference worker
    replay.py    assigns requests to workers        tally.py    their outcomes, summed
    belady.py    the best hit rate possible         report.py   the table at the end

The daemons and the pages' expected bytes are those of the tests (tests/harness/), so it runs from a
checkout. Two more demos, llm.py and vllm.py, use the engines of tests/sglang and tests/vllm.
"""
