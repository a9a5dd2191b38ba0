"""Where the commands `peercached` and `peercachectl` begin. They take Ctrl-C from Python before the
imports, which take half a second: an interrupt there ends the process without a traceback."""

import signal


def ctl() -> None:
    """Runs `peercachectl`."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from peercached.cli.ctl import main as command

    signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


def main() -> None:
    """Runs `peercached`."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from peercached.cli.daemon import main as command

    command()
