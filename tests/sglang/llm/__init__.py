"""A real transformer on two nodes, its KV cache shared through SGLang and peercached.

`make demo-llm` shows it, `tests/sglang/test_llm.py` asserts it. Read in this order:

- `model.py`: a small decoder with random weights, which computes one page at a time
- `engine.py`: answers prompts with it, over SGLang's pools, controller and radix cache
- `worker.py`: an engine as a process that can be killed
- `scenario.py`: two daemons with workers, the faults, and the check of the answers
- `report.py`: the results as tables

The demo is demo/llm.py.
"""
