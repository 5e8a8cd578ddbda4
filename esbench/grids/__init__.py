"""What to run: grid files, environment files and trial specifications."""
