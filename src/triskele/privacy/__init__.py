"""What must not leave this machine: finding secrets, keeping them, and clearing text for others."""
