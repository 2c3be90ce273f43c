"""The exceptions that speak to users: bad input, said in a sentence, and a stop that was asked for."""


class InputError(Exception):
    """Something the user gave cannot be used.

    The message is one clear sentence that says what is wrong, where, and what to do about it.
    The command line prints it and exits with code 2; it never shows a traceback.
    """


class Stopped(Exception):
    """Training was asked to stop and saved its state; the message says where."""
