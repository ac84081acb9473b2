/** What a model is to tell of a sample. */
#ifndef GW_BASE_LABEL_H
#define GW_BASE_LABEL_H

#include <stdint.h>

/** The class of a sample, or of one of its targets: of each position of a text. */
typedef uint16_t gw_label;

enum { GW_MAX_CLASSES = UINT16_MAX };

#endif
