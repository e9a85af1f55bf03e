"""Stores: the contract, its engines, its wrappers and the probe."""
