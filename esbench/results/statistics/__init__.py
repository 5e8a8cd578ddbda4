"""Statistics and curves as pure functions on arrays; nothing here reads or writes a file."""
