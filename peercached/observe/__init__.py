"""What the daemon lets the outside see of its work.

log.py  the log: text or JSON lines on standard error, with a bound on repetition
"""
