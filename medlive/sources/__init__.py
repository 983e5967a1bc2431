"""Communities: lists and pages fetched politely, archived, read into threads and watched for drift; import files.

`sites` holds one adapter for each community. Imports `threads` and below; `service` implements the ledger.
"""
