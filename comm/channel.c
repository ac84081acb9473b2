/* A channel carries a lane's messages: see comm/channel.h. */
#include "comm/channel.h"

gw_err gw_channel_split(const gw_channel *c, int color, gw_channel *sub) {
    *sub = (gw_channel){.dim = c->dim, .yield = c->yield, .lent = c->lent};
    return c->fabric->ops->split(c->fabric, color, &sub->fabric);
}

void gw_channel_close(gw_channel *c) {
    gw_shared_close(c->shared);
    if (c->fabric)
        c->fabric->ops->close(c->fabric);
}

int gw_channel_tag(gw_channel *c) {
    int tag = c->next_tag;
    c->next_tag = tag == c->fabric->most_tag ? 0 : tag + 1;
    return tag;
}
