"""The parts of experiments/testbed, from the words of its command line down to the kernel:

options   the command line
build     up and down: namespaces, links, control groups, the state
shaping   what makes a link of a pair of interfaces: rates, buckets, segmentation offload
groups    hosts that get only a part of a core
ranks     run and exec
look      status
check     measures the links
system    commands, namespaces and the state folder
"""
