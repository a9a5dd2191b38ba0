"""The daemon's log and its measured latencies.

log.py  the log: text or JSON lines on standard error, with a limit on repetition
"""
