/* The same checks with the ranks on two emulated nodes, each of which holds a copy of its own. */
#define EMULATE_NODES
#include "test_data.c"
