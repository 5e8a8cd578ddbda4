"""Adapters of other libraries, found through entry points and imported when requested."""
