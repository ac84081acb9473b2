"""The parts of experiments/testbed, from its command line down to the kernel:

options   the command line
quantity  its rates, sizes and times
build     up and down: namespaces, links, control groups, the state
shaping   the links: rates, buckets, segmentation offload
groups    slow hosts
ranks     run and exec
look      status
check     measures the links
system    commands, namespaces and the state folder
"""
