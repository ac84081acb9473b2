#include "base/list.h"

#include <stdlib.h>
#include <string.h>

/* The end of the item that begins at `at`: the next separator outside parentheses. NULL: they do
 * not balance. */
static char *item_end(char *at, char separator) {
    int depth = 0;
    for (; *at && (depth > 0 || *at != separator); at++) {
        depth += (*at == '(') - (*at == ')');
        if (depth < 0)
            return NULL;
    }
    return depth == 0 ? at : NULL;
}

/* "(SPEC)" without its parentheses. */
static char *unwrap(char *item) {
    size_t len = strlen(item);
    if (*item != '(' || item[len - 1] != ')')
        return item;
    char *end = item_end(item + 1, ')');
    if (end != item + len - 1)
        return item;
    *end = '\0';
    return item + 1;
}

gw_err gw_list_read(gw_list *out, const char *owner, const char *option, const char *text,
                    bool commas) {
    *out = (gw_list){.text = strdup(text)};
    if (!out->text)
        return gw_fail(GW_ERR_NOMEM, "%s: out of memory", owner);
    char *first = item_end(out->text, ';');
    char separator = first && *first == '\0' && commas ? ',' : ';';
    for (char *at = out->text;;) {
        char *end = item_end(at, separator);
        if (!end)
            return gw_fail(GW_ERR_USAGE, "%s: %s=%s: parentheses do not balance", owner, option,
                           text);
        bool last = *end == '\0';
        *end = '\0';
        at = unwrap(at);
        if (!*at)
            return gw_fail(GW_ERR_USAGE, "%s: %s=%s: an empty item", owner, option, text);
        if (out->n == GW_LIST_ITEMS)
            return gw_fail(GW_ERR_USAGE, "%s: %s: more than %d items", owner, option,
                           GW_LIST_ITEMS);
        out->item[out->n++] = at;
        if (last)
            return GW_OK;
        at = end + 1;
    }
}

void gw_list_free(gw_list *list) {
    free(list->text);
    *list = (gw_list){0};
}
