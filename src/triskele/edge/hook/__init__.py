"""The hook of an agent's client: what runs at every prompt, and why a prompt was given nothing."""
