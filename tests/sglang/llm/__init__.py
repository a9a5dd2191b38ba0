"""A real transformer on two nodes, its KV cache shared through SGLang and peercached.

`make demo-llm` shows it, `tests/sglang/test_llm.py` asserts it. Read in this order:

- `model.py`: a small decoder with random weights, which computes one page at a time
- `node.py`: HiCache, the linker or neither, between an engine's device pool and a daemon
- `engine.py`: answers prompts with both, over SGLang's pools and radix cache
- `worker.py`: an engine as a process that can be killed; `host_memory.py`: its memory for KV
- `scenario.py`: two daemons with workers, the faults, and the check of the answers
- `beside.py`: the same story for several kinds of nodes
- `report.py`, `beside_report.py`: the results as tables

The demo is demo/llm.py.
"""
