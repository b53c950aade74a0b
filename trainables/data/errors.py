"""What is raised where a data set cannot be had."""


class DataError(Exception):
    """A data set cannot be had: one line for the user that says what is wrong, where, and what to do."""
