"""Publishing of verified snapshots (`publish`), and fetching of published ones (`download`).

The places: a folder in `target`, a bucket in `s3`, the hub in `huggingface`. Imports `snapshot` and below.
"""
