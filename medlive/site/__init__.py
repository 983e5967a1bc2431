"""The public site: static pages from verified snapshots, bundles and errata.

`read` asks snapshot and evaluation for everything, `data` packs what the browser scores, `pages` and `build` write.
"""
