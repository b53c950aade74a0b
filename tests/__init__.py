"""Small truths about sweeper and trainables."""
