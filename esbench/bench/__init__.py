"""Throughput on this machine, and the cost of a grid."""
