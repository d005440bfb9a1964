"""Who may talk to the listeners."""
