#include "checkpoint/notes.h"

#include <stdarg.h>
#include <stdlib.h>

gw_err gw_notes_add(gw_notes *all, gw_note_kind kind, const char *fmt, ...) {
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    int rc = vasprintf(&text, fmt, args);
    va_end(args);
    gw_note *grown = rc < 0 ? NULL : realloc(all->note, (all->n + 1) * sizeof *grown);
    if (!grown) {
        if (rc >= 0)
            free(text);
        return gw_fail(GW_ERR_NOMEM, "out of memory");
    }
    all->note = grown;
    all->note[all->n++] = (gw_note){kind, text};
    return GW_OK;
}

const char *gw_notes_first(const gw_notes *all, gw_note_kind kind) {
    for (size_t i = 0; i < all->n; i++)
        if (all->note[i].kind == kind)
            return all->note[i].text;
    return NULL;
}

void gw_notes_print(const gw_notes *all, FILE *to) {
    static const char *const before[] = {[GW_NOTE_PASSED_OVER] =
                                             "warning: a checkpoint is passed over: ",
                                         [GW_NOTE_TOLD] = "resume: ",
                                         [GW_NOTE_DROPPED] = "resume: ",
                                         [GW_NOTE_CHANGED] = "resume: changed: "};
    for (size_t i = 0; i < all->n; i++)
        fprintf(to, "%s%s\n", before[all->note[i].kind], all->note[i].text);
}

json_t *gw_notes_json(const gw_notes *all, gw_note_kind kind) {
    json_t *texts = json_array();
    for (size_t i = 0; i < all->n; i++)
        if (all->note[i].kind == kind)
            json_array_append_new(texts, json_string(all->note[i].text));
    return texts;
}

void gw_notes_free(gw_notes *all) {
    for (size_t i = 0; i < all->n; i++)
        free(all->note[i].text);
    free(all->note);
    *all = (gw_notes){0};
}
