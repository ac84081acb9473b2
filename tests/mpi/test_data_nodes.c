/* The same checks on two emulated nodes, each with its own copy. */
#define EMULATE_NODES
#include "test_data.c"
