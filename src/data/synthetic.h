/** Gaussian clusters in the manner of scikit-learn's make_classification (after Guyon: "Design of
 *  experiments of the NIPS 2003 variable selection benchmark", 2003): each cluster sits on a
 *  vertex of a hypercube in a subspace of informative features and is stretched by a random linear
 *  map of its own; redundant features are linear combinations of informative ones, the others
 *  noise; the order of features is random; some labels are replaced by random ones. Every feature
 *  has a variance near 1 and is stored as a byte over -3..3. */
#ifndef GW_DATA_SYNTHETIC_H
#define GW_DATA_SYNTHETIC_H

#include "base/args.h"
#include "data/raw.h"

#include <stdbool.h>

/** The options of "synthetic[:name=value,...]". */
extern const gw_opt gw_synthetic_opts[];

/** Generate the set that `text` ("synthetic[:name=value,...]") describes: classes of equal size in
 *  random order, 1 x features. The bytes are a pure function of it, whatever the number of
 *  threads. raw->source is the spec with every option; free with gw_raw_free. Any
 *  thread. `outline`: without samples, images and labels stay NULL. GW_ERR_USAGE: options that are
 *  out of range or do not fit together. */
gw_err gw_synthetic_make(gw_raw *raw, const char *text, bool outline);

#endif
