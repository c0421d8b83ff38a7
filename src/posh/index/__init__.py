"""Indexes: search over codes, from the plain reference to the composition."""
