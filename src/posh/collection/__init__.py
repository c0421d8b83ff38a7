"""Collections: items, which are vectors with ids and payloads, stored and searched."""
