"""Health of GPUs, from the data plane's numbers."""

from unittest.mock import Mock

import pytest

from peercached.data_plane.status import DataPlaneStatus


@pytest.mark.parametrize(
    ("field", "kind", "severity", "begin"),
    [
        ("why_lost", "gpu_lost", "error", "Restart this daemon"),
        ("why_slow", "gpu_slow", "warning", "See that the pool fits into memory"),
    ],
)
def test_a_gpu_that_fails_is_named_with_its_reason_and_the_remedy(
    field: str, kind: str, severity: str, begin: str
) -> None:
    works = {"id": "0c" * 16, "name": "A100", "regions": 3, "why_lost": "", "why_slow": ""}
    say = Mock()
    status = DataPlaneStatus(Mock(workers=lambda: []), "")
    status.say(say, {"gpus": [works, {**works, "name": "H100", field: "launch failure"}]})
    say.assert_called_once()
    found, sentence, remedy = say.call_args.args
    assert (found.code, found.severity) == (kind, severity)
    assert "H100" in sentence and "launch failure" in sentence
    assert remedy.startswith(begin)
