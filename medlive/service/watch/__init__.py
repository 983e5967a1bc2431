"""Watch an instance: checks and messages about them, status and week reports, metrics, and `medlive doctor`."""
