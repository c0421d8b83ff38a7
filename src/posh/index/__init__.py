"""Indexes: search over codes."""
