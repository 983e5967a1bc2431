"""What every test shares: how long and how freely properties are tried."""

import os

from hypothesis import settings

# No test measures time, so no example has a deadline. CI tries the same examples each time, so that a change is
# judged by itself; a developer's run tries new ones, and what it finds becomes a test of its own.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("ci" if os.environ.get("CI") else "here")
