"""Hints: what routers and engines tell of pages that they will need, or need no more.

`envelope.py` takes an envelope apart, `budget.py` says how much a namespace's hints may cost, and
`executor.py` carries the actions out. A hint is advice: it may be refused, and no request waits for
it. It never touches a page of another namespace than the one that it names.
"""
