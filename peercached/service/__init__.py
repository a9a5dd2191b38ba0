"""Integration with a service manager: notifications to systemd, and reloading while it runs.

`notify.py` implements systemd's notification protocol. `heart.py` feeds its watchdog from the event
loop. `settings.py` holds the configuration that a reload reads again. `signals.py` maps signals to
"stop", "stop at once" and "reload".
"""
