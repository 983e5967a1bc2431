"""A folder that can be verified, whatever is in it: listing, numbered checks, signatures, locks."""
