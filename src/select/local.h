/** A step of a rank without any exchange, in seconds on the slowest rank. */
#ifndef GW_SELECT_LOCAL_H
#define GW_SELECT_LOCAL_H

typedef struct gw_local {
    double data_s, forward_s, backward_s, update_s, other_s;
} gw_local;

static inline double gw_local_sum(const gw_local *l) {
    return l->data_s + l->forward_s + l->backward_s + l->update_s + l->other_s;
}

#endif
