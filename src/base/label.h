/** What a model predicts for a sample. */
#ifndef GW_BASE_LABEL_H
#define GW_BASE_LABEL_H

#include <stdint.h>

/** The class of a sample or, for texts, of one of its targets: each position has one. */
typedef uint16_t gw_label;

enum { GW_MAX_CLASSES = UINT16_MAX };

#endif
