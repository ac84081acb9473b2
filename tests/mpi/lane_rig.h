/* An algorithm and a codec on a lane of their own, and sums over it. */
#ifndef GW_TESTS_LANE_RIG_H
#define GW_TESTS_LANE_RIG_H

#include "comm/algo.h"
#include "comm/lane.h"

#include "../specs.h"
#include "check.h"

typedef struct rig {
    gw_codec codec;
    gw_algo algo;
    gw_lane *lane;
    float *base; /* of n floats */
} rig;

static inline void rig_open(rig *r, const char *algo, const char *codec, size_t n, bool feedback) {
    CHECK_OK(open_codec(&r->codec, codec));
    CHECK_OK(open_algo(&r->algo, algo, &r->codec));
    gw_lane_setup setup = {.codec = &r->codec,
                           .n = n,
                           .feedback = feedback,
                           .seed = 5,
                           .yield = true,
                           .shared = r->algo.ops->caps & GW_ALGO_SHARED};
    CHECK_OK(gw_lane_open(&r->lane, MPI_COMM_WORLD, &setup));
    CHECK_OK(gw_lane_floats(r->lane, n, &r->base));
}

static inline void rig_close(rig *r) {
    gw_lane_close(r->lane);
    gw_algo_close(&r->algo);
    gw_codec_close(&r->codec);
}

/* An allreduce that has not begun. */
static inline gw_schedule *rig_sum(rig *r, gw_span span) {
    gw_schedule *s = NULL;
    CHECK_OK(gw_schedule_new(&s, r->lane, r->base, span));
    CHECK_OK(gw_algo_lay_down(&r->algo, s, GW_ALLREDUCE, 0));
    return s;
}

#endif
