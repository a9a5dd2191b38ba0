"""Whether one distribution alone owns the client's files in this Python environment."""

from __future__ import annotations

from peercached.doctor.finding import Finding


def check_packages(daemon: str | None, client: str | None) -> list[Finding]:
    """The installed versions of the distributions peercached and peercache-client; None: not
    installed. Both contain the folder peercache_client, and the later installation wins."""
    if daemon is None or client is None:
        return []
    same = daemon == client
    text = (
        f"peercached {daemon} and peercache-client {client} are both installed in this environment "
        "and contain the same files: "
    )
    text += (
        "the removal of one breaks the other"
        if same
        else "the daemon may run with files of the other version"
    )
    remedy = (
        "pip uninstall peercache-client, then pip install --force-reinstall --no-deps "
        f"peercached-{daemon}-*.whl: it contains the client."
    )
    return [Finding("packages", "warning" if same else "failure", text, remedy)]
