"""Who may use the private rooms: signing in and out, passwords, invitations, `require` for routes."""
