"""The daemon under a service manager: what it tells systemd, and what an operator may change
while it runs.

`notify.py` speaks systemd's notification protocol, `heart.py` feeds its watchdog from the event
loop, `settings.py` is the configuration that can be read again, `signals.py` turns signals into
"stop", "stop at once" and "reload".
"""
