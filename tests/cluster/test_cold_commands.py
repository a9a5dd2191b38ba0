"""Commands know pages that only the object store has."""

import json
from pathlib import Path

from harness.cold import PAGES, STORED, fill_and_read, options, wait_known, wipe
from harness.content import Content
from harness.ctl import ctl
from harness.disks import found
from harness.fixtures import MakeCluster
from harness.pages import keys_of

PAGE = 65_536


def test_commands_find_pin_and_remove_pages_of_the_store_and_a_drain_counts_them(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    store = f"file://{folder}"
    cluster = make_cluster(1, **options(store))
    keys = keys_of("kept", PAGES)
    fill_and_read(cluster[0], cluster[0].attach(), keys)
    wipe(cluster)
    new = make_cluster(1, **options(store, cold_prices="get 0.0004"))[0]
    wait_known(new, STORED)

    def run(*words: str, code: int = 0) -> str:
        done = ctl(new, *words, "--namespace", "test")
        assert done.exit_code == code, done.output
        return str(done.output)

    # Far from each other, because neighbours come along.
    located, got, traced, pinned, gone = (f"{keys[at].decode()}" for at in range(0, STORED, 40))
    where = json.loads(run("locate", located, "--json"))
    assert where["holders"] == [] and where["stored"]["length"] == PAGE
    assert (folder / where["stored"]["object"]).is_file()
    text = run("locate", located)
    assert store in text and where["stored"]["object"] in text and "4e-07" in text
    assert run("locate", "nowhere", code=1).count("object store") == 0

    page = tmp_path / "page"
    assert "from pages/" in run("get", got, "-o", str(page))
    assert page.read_bytes() == bytes(Content().page(got.encode(), PAGE))

    steps = {one["name"]: one for one in json.loads(run("trace", traced, "--json"))["steps"]}
    assert steps["store"]["outcome"] == "ok"

    assert "pinned" in run("pin", pinned, "--for", "10m")
    assert new.status()["pins"]["pages"] == 1

    assert run("remove", gone).startswith("removed")
    assert run("remove", gone, code=1).startswith("absent")
    assert run("locate", gone, code=1).count("object store") == 0

    said = ctl(new, "status").output
    assert "from the object store" in said and "from other nodes" not in said
    worker = new.attach()
    mine = keys_of("mine", 16)
    assert all(worker.set(mine)) and found(worker, mine) == 16
    drained = json.loads(ctl(new, "drain", "--stay", "--seconds", "20", "--json").output)
    assert drained["stored_pages"] == 16 and drained["stored_bytes"] == 16 * PAGE
    assert drained["complete"], "the others are there already"
