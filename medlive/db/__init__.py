"""PostgreSQL: a store for each noun, the tables, migrations, and the embedded server.

The only room that writes SQL. A store takes and gives the nouns of the stages; imports those rooms.
"""
