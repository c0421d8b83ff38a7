"""Tests of the engine on Milvus."""
