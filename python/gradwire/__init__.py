"""gradwire's ways to exchange gradients over MPI, from Python: the header gradwire.h over ctypes.

Session serves models whose tensors are numpy arrays; gradwire.torch serves PyTorch. The library is
found in the order of gradwire.library.places."""

from gradwire.launch import start
from gradwire.library import ALL, GRAD, PARAM, VERSION, Error, Phase
from gradwire.session import Session

__all__ = ["ALL", "GRAD", "PARAM", "Error", "Phase", "Session", "start"]
__version__ = VERSION
