"""A small model of removals, searched completely (CONTRIBUTING.md, "Where tests are")."""
