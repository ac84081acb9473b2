/** What a resumed run has to say of itself: a line each on the screen, texts by kind in run.json.
 *  No MPI. */
#ifndef GW_CHECKPOINT_NOTES_H
#define GW_CHECKPOINT_NOTES_H

#include "base/err.h"

#include <jansson.h>
#include <stdio.h>

typedef enum gw_note_kind {
    GW_NOTE_PASSED_OVER, /* a damaged checkpoint, and why */
    GW_NOTE_TOLD,        /* on the screen only */
    GW_NOTE_DROPPED,     /* state that the run lost */
    GW_NOTE_CHANGED      /* what makes the steps before and after differ in kind */
} gw_note_kind;

typedef struct gw_note {
    gw_note_kind kind;
    char *text; /* no newline */
} gw_note;

/** Zeroed before the first use. */
typedef struct gw_notes {
    gw_note *note; /* in the order in which they were added */
    size_t n;
} gw_notes;

/** GW_ERR_NOMEM. */
gw_err gw_notes_add(gw_notes *all, gw_note_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/** The first text of that kind, NULL: there is none. Owned by `all`. */
const char *gw_notes_first(const gw_notes *all, gw_note_kind kind);

/** A line each, of every kind. */
void gw_notes_print(const gw_notes *all, FILE *to);

/** The texts of one kind, a new array. */
json_t *gw_notes_json(const gw_notes *all, gw_note_kind kind);

void gw_notes_free(gw_notes *all);

#endif
