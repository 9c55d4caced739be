"""What a user can mend: said in one sentence, without a traceback."""

from __future__ import annotations


class UserError(ValueError):
    """A setting or a table that does not fit; the message says what to do."""
