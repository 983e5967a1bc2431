"""`medlive harvest`, `import` and `source`."""
