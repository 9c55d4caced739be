"""REST and the inspector: one small app over saved models and over files that are handed in.

Starlette and uvicorn (extra `web`) are imported here and nowhere else. Every page has a JSON twin.
"""

from __future__ import annotations
