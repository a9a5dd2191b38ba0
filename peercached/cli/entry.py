"""Where the command `peercached` begins. It takes Ctrl-C from Python before the imports, which take
half a second: an interrupt there ends the process without a traceback."""

import signal


def main() -> None:
    """Runs `peercached`."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from peercached.cli.daemon import main as command

    command()
