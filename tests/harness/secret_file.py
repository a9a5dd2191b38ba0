"""The file of a cluster's secret."""

from pathlib import Path


def secret_file(folder: Path, secret: bytes) -> str:
    path = folder / "secret"
    path.write_bytes(secret)
    path.chmod(0o600)
    return str(path)
