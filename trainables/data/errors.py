"""The error of data sets that cannot be loaded."""


class DataError(Exception):
    """A data set cannot be loaded. The message is one line that says what is wrong, where, and what to do."""


class DownloadError(DataError):
    """A published data set is absent, and its download has failed."""
