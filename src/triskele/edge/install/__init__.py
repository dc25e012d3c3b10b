"""Installers: the configuration files of agents, and the entries that triskele writes into them."""
