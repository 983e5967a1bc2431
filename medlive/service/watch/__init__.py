"""What is looked at: the checks and the loop that reports them, status, a week, figures, `medlive doctor`."""
