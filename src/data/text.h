/** Texts, whose next character a model is to tell. */
#ifndef GW_DATA_TEXT_H
#define GW_DATA_TEXT_H

#include "data/raw.h"

#include <stdbool.h>

/** Read the file, gzipped or not. Its last tenth is the test set. Each part is cut into windows of
 *  `context` characters: 1 x context tokens, whose labels are the characters one further. A token
 *  is a character's place among all those of the file, in ascending order, or, with `bytes`, a
 *  byte's value. raw->source is `path`; free with gw_raw_free. Any thread. `outline`: images and
 *  labels stay NULL.
 *  GW_ERR_USAGE: a context below 1. GW_ERR_INPUT: a file that cannot be read, or is too short. */
gw_err gw_text_set_read(gw_raw *raw, const char *path, bool bytes, int context, bool outline);

#endif
