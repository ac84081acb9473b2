"""gradwire's ways to exchange gradients over MPI, from Python: the header gradwire.h over ctypes.

Session serves models whose tensors are numpy arrays; gradwire.torch serves PyTorch. The library is
found as $GRADWIRE_LIBRARY, else beside this file, else as the loader finds libgradwire.so.0."""

from gradwire.library import ALL, GRAD, PARAM, VERSION, Error, Phase, start
from gradwire.session import Session

__all__ = ["ALL", "GRAD", "PARAM", "Error", "Phase", "Session", "start"]
__version__ = VERSION
