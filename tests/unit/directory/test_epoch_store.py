"""Epochs of cleared namespaces on disk. They load as saved."""

from pathlib import Path

import pytest
from harness.fake_engine import digest_of

from peercached.directory.epoch_store import EpochStore

SOME = {digest_of("a"): 3, digest_of("b"): 1}


def test_saved_epochs_are_loaded_for_the_same_node(tmp_path: Path) -> None:
    EpochStore(str(tmp_path), "n").save(SOME)
    assert EpochStore(str(tmp_path), "n").load() == (SOME, "")
    assert EpochStore(str(tmp_path), "another").load() == ({}, "")


def test_without_a_folder_nothing_is_known() -> None:
    store = EpochStore("", "n")
    store.save(SOME)
    epochs, why = store.load()
    assert epochs == {} and "state_dir" in why


@pytest.mark.parametrize(
    "text", ["", "{}", '{"format": 2, "epochs": {}}', '{"format": 1, "epochs": {"00": 1}}', "[1]"]
)
def test_unreadable_epoch_file_loads_nothing_and_is_reported(tmp_path: Path, text: str) -> None:
    store = EpochStore(str(tmp_path), "n")
    assert store.path is not None
    store.path.write_text(text)
    epochs, why = store.load()
    assert epochs == {} and "cannot be read" in why
