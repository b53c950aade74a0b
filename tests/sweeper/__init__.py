"""Small truths about sweeper."""
