/* The loops of one instruction set. */
#include "compress/kernel/bucket_loop.h"
#include "compress/kernel/half_loop.h"
#include "compress/kernel/natural_loop.h"
#include "compress/kernel/onebit_loop.h"
#include "compress/kernel/qsgd_loop.h"
#include "compress/kernel/shuffle_loop.h"
#include "compress/kernel/ternary_loop.h"
