/** Which codec, over which algorithm, for which tensor of the model.
 *
 *  A mix is a list (base/spec.h) of a codec for all tensors, and rules:
 *      topk:ratio=0.01;layer2=none;*.bias=none;min_bytes=4K
 *  layerN=CODEC     the tensors of layer N (0: the one next to the input)
 *  PATTERN=CODEC    the tensors whose names match, like file names in a shell (fnmatch), in a
 *                   program that names them
 *  min_bytes=BYTES  tensors of fewer bytes of floats stay exact: biases, whose few values matter
 *                   more than their bytes (Lin et al., "Deep gradient compression", ICLR 2018)
 *  The first layer or pattern that fits applies; min_bytes comes last. algo=auto is refused: its
 *  choice for one codec may hold up the collectives of another, which then start in different
 *  orders on the ranks. */
#ifndef GW_COMM_MIX_H
#define GW_COMM_MIX_H

#include "comm/algo.h"

enum { GW_MIX_CODECS = 16 };

typedef struct gw_mix {
    const char *spec; /* the spec that opened it, as text */
    int n;            /* codecs in use; the first is for all tensors without a rule */
    gw_codec codec[GW_MIX_CODECS];
    gw_algo algo[GW_MIX_CODECS];        /* the algorithm that carries this codec */
    int layer[GW_MIX_CODECS];           /* the layer that the codec is for; -1: none */
    const char *pattern[GW_MIX_CODECS]; /* the names that it is for; NULL: none */
    int exact;                          /* index of the codec for small tensors; -1: no such rule */
    size_t min_bytes;
    bool framed; /* all of them write frames */
} gw_mix;

/** The model that a mix is applied to, or a part of it. */
typedef struct gw_mix_model {
    const gw_tensor *tensors;
    int n_tensors;
    int layers; /* of the whole model, if these tensors are a part of it; 0: they are all */
    const char *const *names; /* of the tensors, if they are all; NULL: they have none */
} gw_mix_model;

/** Open the codecs of `spec`, a list, which is kept. For `auto`, which leaves the choice to
 *  predict/chooser.h, open none: n is 0. `framed`: see gw_codec_frame. No communication.
 *  GW_ERR_USAGE, GW_ERR_INPUT, GW_ERR_UNSUPPORTED. */
gw_err gw_mix_open(gw_mix *out, const gw_spec *spec, bool framed);
/** Open a mix of one codec, ignoring its neighbours in a list. */
gw_err gw_mix_single(gw_mix *out, const gw_spec *codec, bool framed);
/** Open `algo` (see gw_algo_open) for each codec: with NULL each gets its own default. */
gw_err gw_mix_carry(gw_mix *mix, const gw_spec *algo);
void gw_mix_close(gw_mix *mix);

/** Return whether one of its codecs keeps more in its first exchanges (GW_CODEC_WARMS). */
bool gw_mix_warms(const gw_mix *mix);

/** Set up `lane`, which carries the first codec, for the others: the arena is cut into runs of
 *  tensors with one codec each, and each further codec gets its own lane, closed with this one.
 *  feedback[i]: codec i keeps a residual. GW_ERR_USAGE: a rule for a layer that the model lacks, or
 *  a pattern that no name matches. Collective. */
gw_err gw_mix_apply(const gw_mix *mix, gw_lane *lane, const gw_mix_model *m, const bool *feedback);

#endif
