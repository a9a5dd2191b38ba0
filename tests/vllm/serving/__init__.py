"""Whole vLLM engines on a CPU, beside daemons.

`test_vllm_engines.py` and its neighbours assert what they do. `make demo-vllm` shows it. Read
in this order:

- `tiny_model.py`: a folder with a small Llama with random weights
- `tiny_gemma.py`: the same of a hybrid model
- `cpu_spec.py`: vLLM's tiering spec with a worker that copies with torch
- `beside_lmcache.py`: LMCache's connector instead of our tier
- `engine.py`: an engine as a process that answers prompts and can be killed

The demo is demo/vllm.py.
"""
