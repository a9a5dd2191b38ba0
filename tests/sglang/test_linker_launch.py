"""SGLang's launch options for the linker: what is refused at the start, and why."""

import json
import shlex
from typing import Any

import pages
import pytest
from click.testing import CliRunner
from controller_node import Shape, device_pool
from sglang.srt.server_args import ServerArgs

from peercache_client.sglang.linker_settings import LinkerSettings
from peercached.cli.ctl import main


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("namespce", "x", "did you mean 'namespace'"),
        ("layot", "page_first", "did you mean 'layout'"),
        ("interface_v1", 1, "unknown key 'interface_v1' in linker_extra_config"),
        ("layout", "layer_first", "page_first or page_first_direct"),
        ("staging_bytes", "64MiB", "a number of bytes"),
        ("staging_bytes", True, "a number of bytes"),
        ("staging_bytes", 4096, "the pages need 49536 or more"),
        ("timeout_s", 0, "above 0"),
        ("stores_only", "yes", "true or false"),
    ],
)
def test_an_invalid_config_fails_the_start_with_a_hint(
    make_linker: Any, key: str, value: object, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        make_linker(0, Shape(), **{key: value})


def test_a_page_larger_than_the_default_region_gets_a_larger_region(make_linker: Any) -> None:
    node = make_linker(0, Shape(layers=40, page_size=256, heads=64, head_dim=64, v_head_dim=64))
    form = node.linker._forms["kv"]
    assert node.linker._loads._region.size >= form.page_bytes > 32 << 20


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mtp_draft_device_pools": (object(),)}, "does not support MTP layers packed"),
        ({"kv_layout": "hnd"}, "does not support KV in the layout hnd"),
    ],
    ids=["packed draft", "layout"],
)
def test_pools_that_cannot_be_moved_fail_the_start(change: dict[str, Any], says: str) -> None:
    from types import SimpleNamespace

    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

    from peercache_client.sglang.device_pools import device_pools

    pool = device_pool(Shape())
    pool.kv_cache_layout = change.pop("kv_layout", pool.kv_cache_layout)
    params = SimpleNamespace(
        token_to_kv_pool_allocator=SimpleNamespace(get_kvcache=lambda: pool),
        page_size=16,
        mtp_draft_device_pools=(),
        sidecar_draft_device_pools=(),
    )
    vars(params).update(change)
    with pytest.raises(ValueError, match=says):
        device_pools(params, {ComponentType.FULL})


def test_a_draft_model_s_pool_travels_with_the_target_s(make_linker: Any) -> None:
    from sglang.srt.mem_cache.hicache_storage import PoolName
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

    from peercache_client.sglang.device_pools import device_pools

    node = make_linker(0, Shape(), model="draft")
    params = node.cache.cache_init_params
    params.sidecar_draft_device_pools = (device_pool(Shape(layers=1)),)
    group = device_pools(params, {ComponentType.FULL})
    assert group.sources == {PoolName.KV: PoolName.KV, PoolName.DRAFT: PoolName.KV}
    assert group.num_layers == 3


def printed(socket_path: Any, *options: str) -> list[str]:
    arguments = ["--socket", str(socket_path), "sglang-config", "--linker", *options]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return shlex.split(result.stdout.replace("\\\n", ""))  # shlex knows no continued lines


def test_sglang_takes_the_printed_line(make_linker: Any, nodes: Any) -> None:
    from sglang.srt.arg_groups.hicache_hook import handle_hicache

    enable, backend, dynamic, config, text = printed(nodes[0].socket_path, "--tenant", "one")
    assert (enable, backend, dynamic, config) == (
        "--enable-unified-cache-external-linker",
        "--unified-cache-external-linker-backend",
        "dynamic",
        "--unified-cache-external-linker-config",
    )
    given = json.loads(text)
    args = ServerArgs(
        model_path="dummy",
        enable_unified_cache_external_linker=True,
        unified_cache_external_linker_backend=dynamic,
        unified_cache_external_linker_config=given,
    )
    handle_hicache(args)
    extra = given["linker_extra_config"]
    assert LinkerSettings.parse(extra).tenant == "one"
    node, other = (make_linker(i, Shape(), model="printed", **extra) for i in (0, 0))
    tokens = pages.tokens("printed", 64)
    assert node.prefill(tokens)
    assert other.holds(other.load(tokens), tokens)
