"""The tests. A regular package: one that some installed package left behind would win over a namespace."""
