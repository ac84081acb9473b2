/** Profiles of training steps (profiles/profile.schema.json): the tensors of a model in forward
 *  order, and when each one's gradient is ready. What a file claims is not believed: it is read
 *  whole, or refused by one line that says which tensor, which key and which value. */
#ifndef GW_PLAY_PROFILE_H
#define GW_PLAY_PROFILE_H

#include "base/err.h"

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct gw_step_tensor {
    const char *name;
    int group; /* from 0, never falling and skipping none */
    size_t n;  /* floats, at most INT_MAX */
    size_t rows;
    double forward_s, backward_s, std;
    size_t activation; /* floats of a sample that pass from its group on; 0: not known, no cut */
    /* Over tensor ranks: */
    size_t shard;    /* the dimension of its shape that they divide has so many; 0: all have all */
    bool shard_rows; /* it is the rows */
    /* Floats of a sample: that they sum behind its group, forward; that each gives to all for the
     * loss, in the last group; that they sum of the gradient of its group's input; of that input,
     * where they have parts of it, gather it, and scatter the gradient's sum. */
    size_t forward_sum, forward_gather, backward_sum, input_parts;
    double input_extra; /* part of backward_s, beyond half of it, for the gradient of its input */
} gw_step_tensor;

typedef struct gw_step_profile {
    json_t *document; /* in which the texts lie */
    const char *model, *source, *device, *machine, *date;
    const char *torch;   /* NULL: not PyTorch's */
    long threads, batch; /* batch: samples of a step, from 1 on */
    double optimizer_s;
    /* Of the program that computes it: */
    double data_s, rest_s; /* of a step, before its first layer and behind its last gradient */
    double poll_s;         /* between two polls while another device computes; 0: 100 us */
    bool ahead; /* lazy: what is published travels while the layer before it is computed */
    double forward_s, backward_s; /* sums over the tensors */
    bool shared; /* the tensors' times are those of a tensor rank's part, as it was measured */
    int n_tensors, groups;
    size_t n; /* floats of all tensors */
    gw_step_tensor *tensor;
} gw_step_profile;

/** The path of the profile that `name` means: a file, or else one of those that came with the
 *  program, without their ".json". GW_ERR_INPUT: neither; the message has their names. */
gw_err gw_step_profile_find(char path[PATH_MAX], const char *name);

/** Read the profile that `path` means, as gw_step_profile_find has it. GW_ERR_INPUT, with the
 *  line. */
gw_err gw_step_profile_read(gw_step_profile *p, const char *path);

/** The same of a document, which *p owns from now on; messages call it `name`. */
gw_err gw_step_profile_take(gw_step_profile *p, json_t *of, const char *name);

/** What was read; also after an error. */
void gw_step_profile_free(gw_step_profile *p);

#endif
