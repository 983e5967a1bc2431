"""Snapshots: their cases fixed, their rows read, frozen; withdrawals from them; and the weeks that they wait for."""
