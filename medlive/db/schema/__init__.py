"""The database's schema: its upgrades, the check that it is what the table classes say, and the roles' rights."""
