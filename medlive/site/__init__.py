"""The public site: static pages from verified snapshots, bundles and errata.

`read` asks snapshot and evaluation for everything, `pages` makes the pages and what the browser scores, `live` writes
them into a folder or has them ready for a server.
"""
