"""vLLM's worker on a CPU, for ranks of PP. vLLM 0.32 makes the buffers for what the rank before
sends only when it compiles the model. These tests compile nothing."""

from __future__ import annotations

from typing import Any

from vllm.distributed import get_pp_group
from vllm.v1.worker.cpu_worker import CPUWorker


class PipelineWorker(CPUWorker):  # type: ignore[misc]
    def compile_or_warm_up_model(self) -> Any:
        runner = self.model_runner
        if not get_pp_group().is_first_rank and runner.intermediate_tensors is None:
            runner.intermediate_tensors = runner.model.make_empty_intermediate_tensors(
                batch_size=runner.max_num_tokens,
                dtype=runner.model_config.dtype,
                device=runner.device,
            )
        return super().compile_or_warm_up_model()
