/** Measuring what the cost model (select/forecast.h) is made of: algorithms on the actual ranks,
 * codecs on an actual gradient, the step without exchange. */
#ifndef GW_SELECT_SURVEY_H
#define GW_SELECT_SURVEY_H

#include "select/forecast.h"
#include "step/step.h"

/** Floats that are enough to measure with: above 32 MiB no cache bends the line any more. */
enum { GW_SURVEYED = 8 << 20 };

/** What an algorithm takes on these ranks. */
typedef struct gw_algo_survey {
    gw_spec spec;
    gw_curve exact, coded;   /* with plain floats, with a codec; n == 0: it cannot */
    bool summed;             /* coded: MPI adds the encodings, which it must be able to */
    double work[GW_CODINGS]; /* coded: as in gw_way */
    double part;             /* floats of a call of the codec, by floats of the span; or, */
    double chunk;            /* where it cuts into chunks (> 0): floats of a call */
    double chunks;           /* chunks a float of the span; 0: it does not cut */
    double exact_sent, sent; /* as in gw_way */
} gw_algo_survey;

typedef struct gw_survey_place {
    MPI_Comm comm;
    size_t n; /* floats of the longest span to measure */
    uint64_t seed;
    bool yield; /* the node runs more threads than cores */
    bool exact; /* plain floats alone */
    double budget_s;
} gw_survey_place;

/** Collective: measure algo[0..n_algos), whose specs are set, in about budget_s seconds: allreduces
 *  of 1 KiB, 16 KiB, .. up to n floats, plain and with a codec that only counts, in
 *  turns, each started together; of the repetitions' times, which are the slowest rank's, the
 * typical one. Sizes that would break the budget are left to the last slope. The same result on all
 * ranks. What an algorithm cannot do leaves its curve empty. */
gw_err gw_survey_algos(const gw_survey_place *place, gw_algo_survey *algo, int n_algos);

/** What a codec takes, in calls of about `part` floats. */
typedef struct gw_codec_price {
    size_t part;
    double price[GW_CODINGS]; /* seconds a float; SUM only of summable codecs */
    double bytes;             /* encoded, a float */
} gw_codec_price;

/** Collective over `comm`, but each rank by itself and all at the same time: code gradient[0..n) in
 *  parts, error feedback included where `feedback`, for each of price[0..n_prices).part; the codec
 *  must have been opened and told its ranks by nobody else. The largest figures of all ranks. */
gw_err gw_survey_codec(gw_codec *codec, bool feedback, const float *gradient, size_t n,
                       gw_codec_price *price, int n_prices, MPI_Comm comm);

/** A step to be measured. `stepper` is not changed; `step` runs one, with learning rate 0, by the
 *  stepper that it is given. */
typedef struct gw_rehearsal {
    gw_stepper *stepper;
    gw_err (*step)(void *ctx, gw_stepper *by);
    void *ctx;
    MPI_Comm comm;
} gw_rehearsal;

/** Collective: run some steps on every rank for itself, by a stepper of its own on the same model,
 *  and time them with the ledger. Afterwards the model works on params[0..n), which hold its
 *  parameters as they were, and gradient[0..n), which hold the last gradient; gw_step_use makes it
 *  work for the other stepper again. Starts the ledger anew. */
gw_err gw_survey_step(const gw_rehearsal *r, float *params, float *gradient, gw_local *out);

#endif
