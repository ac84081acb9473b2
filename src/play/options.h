/** The options that describe simulated ranks, their network and what they play: options.def has
 *  their rows, for the tables of commands that have `ranks`, too. */
#ifndef GW_PLAY_OPTIONS_H
#define GW_PLAY_OPTIONS_H

#include "play/play.h"

enum { GW_SIM_MOST_RANKS = 1 << 20 };

/** Put their values into *w: all that it says of ranks, links and the network, which
 *  gw_network_close frees. Messages name `owner`. GW_ERR_USAGE, GW_ERR_INPUT. */
gw_err gw_sim_network_read(gw_sim_setup *w, const gw_args *args, const char *owner);

/** Put those of steps into *p, which points to *profile; one is there already where neither
 *  `profile` nor `bytes` is given. gw_step_profile_free it, also after an error. Likewise. */
gw_err gw_sim_steps_read(gw_sim_play *p, gw_step_profile *profile, const gw_args *args,
                         const char *owner);

/** Open the strategy that `comm` means, its algorithm by gw_sim_algo_open, and the codecs. */
gw_err gw_sim_play_open(gw_sim_play *p, const gw_spec *comm, const gw_spec *compress);

/** Close what is open of that, and the network; also after an error. */
void gw_sim_play_close(gw_sim_play *p);

/** GW_ERR_UNSUPPORTED, with the reason: strategy, algorithm or codec cannot be simulated. */
gw_err gw_sim_play_check(const gw_sim_play *p);

/** Describe a link for JSON; the caller's. `byte`: the key of what a byte takes of a core; NULL:
 *  that is left out. */
json_t *gw_sim_link_json(const gw_sim_link *l, const char *byte);

/** gw_sim_play_run of exact gradients by `comm`, as --comm has it, over a star whose hosts have a
 *  rank each; p->world says how many, and their link. Opens and closes all that this takes. */
gw_err gw_sim_play_exact(gw_sim_play *p, const char *comm);

/** That coding any float takes so long, and a call nothing. */
void gw_sim_coding(gw_codec_price *out, double seconds);

#endif
