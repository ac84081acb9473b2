"""gradwire's ways to exchange gradients, for PyTorch on CPUs.

hook serves DistributedDataParallel with what hands out the mean of the gradients; Session takes its
place and serves every strategy; profile times a model for `gradwire replay`."""

from gradwire.library import Error
from gradwire.torch.ddp import hook
from gradwire.torch.group import init
from gradwire.torch.profiles import profile
from gradwire.torch.session import Session

__all__ = ["Error", "Session", "hook", "init", "profile"]
