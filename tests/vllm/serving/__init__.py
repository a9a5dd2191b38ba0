"""Whole vLLM engines on a CPU, beside daemons.

`test_vllm_engines.py` asserts what they do, `make demo-vllm` shows it. Read in this order:

- `tiny_model.py`: a folder with a small Llama with random weights
- `cpu_spec.py`: vLLM's tiering spec with a worker that copies with torch
- `engine.py`: an engine as a process that answers prompts and can be killed
- `__main__.py`: the demo
"""
