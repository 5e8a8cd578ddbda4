"""What every other folder needs: errors, settings, the registry, files and random streams."""
