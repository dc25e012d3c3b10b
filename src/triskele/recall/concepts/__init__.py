"""Concepts for people: what is known of one, how two are connected, how many there are, joining and parting by hand."""
