"""Settings of the libraries that are integrated."""

from __future__ import annotations

import os

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # it would send statistics over the network
