"""What the parts cost, measured on real daemons."""
