"""Small truths about search_spaces."""
