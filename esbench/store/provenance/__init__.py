"""What trials were made with, as ``trial.json`` records it, and what has changed since."""
