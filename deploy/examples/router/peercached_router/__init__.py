"""A small router for engines that share KV pages with peercached: see README.md.

choice    which node gets a request
config    the file of settings
daemons   questions and hints to daemons
proxy     the HTTP server
"""
