"""The daemon of one host. The version is here and nowhere else: builds read this line."""

__version__ = "0.1.0"
