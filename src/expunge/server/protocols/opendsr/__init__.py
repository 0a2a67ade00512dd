"""OpenDSR 2.0, under /opendsr/v2: erasure requests from privacy platforms, with signed responses and callbacks.

The names of its first version, OpenGDPR, also work. An accepted request is never lost: its callbacks are stored with
the change of state that they report, or at the next start.
"""

from .processor import Processor, router

__all__ = ["Processor", "router"]
