"""gradwire's ways to exchange gradients, for PyTorch.

State and comm_hook serve DistributedDataParallel with what hands out the mean of the gradients (hook
registers both), Shards the reduce-scatter of fully_shard; Session takes their place and serves every
strategy; profile times a model for `gradwire replay`."""

from gradwire.library import Error
from gradwire.torch.ddp import State, comm_hook, hook
from gradwire.torch.group import init
from gradwire.torch.profiles import profile
from gradwire.torch.session import Session
from gradwire.torch.shards import Shards

__all__ = ["Error", "Session", "Shards", "State", "comm_hook", "hook", "init", "profile"]
