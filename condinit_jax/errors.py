"""The one exception for mistakes that the person at the keyboard can correct."""


class UserError(ValueError):
    """A wrong config field, file or argument.

    The message is one line: it names the field or file, the value found there, and what would be
    right. Commands print it without a traceback and exit with code 2.
    """
