#include "compress/ratio.h"

#include <math.h>

#define START 0.25

gw_ratio gw_ratio_read(const gw_args *args) {
    return (gw_ratio){gw_args_real(args, "ratio"), (uint64_t)gw_args_int(args, "warmup")};
}

static size_t ratio_part(double ratio, size_t n) {
    size_t k = (size_t)(ratio * (double)n + 0.5);
    k = k ? k : 1;
    return k < n ? k : n;
}

bool gw_ratio_steady(const gw_ratio *r) {
    return r->warmup == 0 || r->ratio >= START;
}

size_t gw_ratio_kept(const gw_ratio *r, uint64_t step, size_t n) {
    if (gw_ratio_steady(r) || step > r->warmup)
        return ratio_part(r->ratio, n);
    double s = step > 1 ? (double)(step - 1) / (double)r->warmup : 0;
    return ratio_part(START * pow(r->ratio / START, s), n);
}

size_t gw_ratio_least(const gw_ratio *r, size_t n) {
    return ratio_part(r->ratio, n);
}

size_t gw_ratio_most(const gw_ratio *r, size_t n) {
    return ratio_part(gw_ratio_steady(r) ? r->ratio : START, n);
}
