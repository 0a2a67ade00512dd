"""OpenDSR 2.0, under /opendsr/v2: erasure requests that privacy platforms send, signed answers and callbacks.

The names of its first version, OpenGDPR, work too. A request that was taken is never forgotten: its callbacks are
written down with the change of state that they tell, or at the next start.
"""

from .processor import Processor, router

__all__ = ["Processor", "router"]
