"""medlive: a weekly, checksummed benchmark of real clinical questions."""

__version__ = "0.1.0"
