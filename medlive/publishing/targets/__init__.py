"""Places beyond this machine that snapshots are published to: a file each, its client imported when it is used."""
