"""Collections: vectors with ids and payloads that are searched and kept."""
