/** Ways of exchanging gradients, strategy x algorithm x codec, compared by playing each; and the
 *  rates of the links at which one is faster than another. Payloads are not there, so accuracy is
 *  not priced: exact and lossy ways are kept apart. */
#ifndef GW_CLI_SIMULATE_CONTEST_H
#define GW_CLI_SIMULATE_CONTEST_H

#include "cli/simulate/play.h"

enum { GW_CONTEST_STRATEGY, GW_CONTEST_ALGO, GW_CONTEST_CODEC, GW_CONTEST_PARTS };
enum { GW_CONTEST_MOST = 2048, GW_CONTEST_DECADES = 5, GW_CONTEST_KNOWN = 256 };

/** Ways are compared over links of this rate and GW_CONTEST_DECADES times ten times it, bytes/s. */
#define GW_CONTEST_SLOWEST (10e6 / 8)

/** Measured exchanges of 2 MiB and more took 0.99 to 1.25 times as long as played ones, on 2 and 4
 *  hosts, on 8 up to 200 Mbit/s each and on racks (docs/simulate.md, "Figures"): as if links were
 *  so many times as slow. */
#define GW_CONTEST_SHORTEST 0.99
#define GW_CONTEST_LONGEST  1.25

typedef struct gw_contestant {
    int part[GW_CONTEST_PARTS];           /* numbers in gw_contest.spec */
    double step_s, exposed_s, sent_bytes; /* of a rank */
    double least_s, most_s;               /* the interval of step_s */
    bool shown; /* the fastest exact one of its strategy, or lossy one of its codec */
    bool leads; /* over the slowest links it is faster than the baseline, */
    int turns;  /* and ceases to be so, or begins to, at these rates, bytes/s: */
    double turn[GW_CONTEST_DECADES];
    double measured_s; /* NaN: not measured */
} gw_contestant;

typedef struct gw_contest {
    gw_sim_play play;    /* what all have in common */
    gw_network *network; /* of play.world */
    double margin;       /* faster: by more than this share */
    gw_spec *list[GW_CONTEST_PARTS];
    const gw_spec *spec[GW_CONTEST_PARTS][GW_SPEC_ITEMS];
    int n_specs[GW_CONTEST_PARTS];
    gw_strategy strategy[GW_SPEC_ITEMS];
    gw_codec codec[GW_SPEC_ITEMS];
    double coded_s[GW_SPEC_ITEMS][GW_CODINGS]; /* what coding a float takes, by codec */
    bool costly[GW_SPEC_ITEMS]; /* algorithms left out, which play more than play.most_played */
    int plays;
    gw_contestant *at; /* exact ones, the fastest first, then lossy ones likewise */
    int n, n_exact,
        base;  /* the baseline: of exact ones the fastest that overlaps, or the fastest */
    int known; /* steps of the baseline over other links: */
    double known_at[GW_CONTEST_KNOWN], known_s[GW_CONTEST_KNOWN];
} gw_contest;

/** Open what the lists name; NULL: all of that registry whose steps are those of a serial run, of
 *  algorithms those that play folded in one piece alone in this way, too. `none` is always among
 *  the codecs. gw_contest_close also after an error. */
gw_err gw_contest_open(gw_contest *c, const char *const list[GW_CONTEST_PARTS]);
void gw_contest_close(gw_contest *c);

/** Play at the given rate, and then those shown at others. Of exact, lossy and sparse codecs the
 *  first is played with every strategy and algorithm, each other one with the ways that were the
 *  fastest then. GW_ERR_UNSUPPORTED: nothing exact can be played. */
gw_err gw_contest_play(gw_contest *c);

#endif
