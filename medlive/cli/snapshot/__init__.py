"""`medlive snapshot`: freeze, sign, verify, compare, withdraw, publish, fetch."""
