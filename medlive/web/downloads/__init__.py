"""Downloads, without an account: frozen snapshots as `medlive snapshot fetch` reads them, and pages about them."""
