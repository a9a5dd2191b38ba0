"""Health of GPUs, from the data plane's numbers."""

from unittest.mock import Mock

from peercached.data_plane.status import DataPlaneStatus


def test_a_lost_gpu_is_an_error_with_its_reason_and_the_remedy() -> None:
    gpu = {"id": "0c" * 16, "name": "H100", "regions": 3, "why_lost": "launch failure"}
    works = {**gpu, "name": "A100", "why_lost": ""}
    say = Mock()
    status = DataPlaneStatus(Mock(workers=lambda: []), "")
    status.say(say, {"gpus": [gpu, works]})
    say.assert_called_once()
    kind, sentence, remedy = say.call_args.args
    assert (kind.code, kind.severity) == ("gpu_lost", "error")
    assert "H100" in sentence and "launch failure" in sentence
    assert remedy.startswith("Restart this daemon")
