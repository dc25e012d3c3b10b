"""The web pages of the background process."""
