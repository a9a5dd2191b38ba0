"""A real transformer on two nodes, and the gain from a shared KV cache: `make demo-llm`."""

# /// script
# [tool.peercached]
# engine = "sglang"
# ///

import argparse
import sys

from llm.beside import run_beside
from llm.beside_report import show_beside
from llm.model import Architecture
from llm.report import show
from llm.scenario import Scenario, Sizes

from peercache_bench.report import report_console

SIZES = Sizes(first_prompt=2048, each_turn=256, turns=4, handed_over=2048, answer=32)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo-llm", description=__doc__)
    parser.add_argument("--layers", type=int, default=8, help="of the model (default: 8)")
    parser.add_argument(
        "--linker",
        action="store_true",
        help="the linker beside HiCache and beside none, and both kinds in one conversation",
    )
    given = parser.parse_args()
    layers = given.layers
    architecture = Architecture(layers=layers)
    console = report_console(stderr=False)
    console.print(
        f"a decoder of {layers} layers with random weights, float32 on one core: "
        f"{architecture.kv_bytes_per_token >> 10} KiB of KV per token"
    )
    if given.linker:
        with console.status("") as status:
            told = run_beside(architecture, SIZES, status.update)
        show_beside(told, console)
        return 0 if told.right else 1
    with console.status("") as status:
        story = Scenario(architecture, SIZES, status.update).run()
    show(story, console, architecture.page_tokens)
    return 0 if story.right else 1


if __name__ == "__main__":
    sys.exit(main())
