"""PostgreSQL: a module of queries for each noun, the tables, the schema's upgrades, and the embedded server.

Other packages call its functions instead of writing SQL; these take and return those packages' own types.
"""
