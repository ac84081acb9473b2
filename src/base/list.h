/** Lists of specs in one text: "A;B;C" or, where a caller allows it and there is no semicolon,
 *  "A,B,C", in which an item with commas of its own stands in parentheses. */
#ifndef GW_BASE_LIST_H
#define GW_BASE_LIST_H

#include "base/err.h"

#include <stdbool.h>

enum { GW_LIST_ITEMS = 64 };

typedef struct gw_list {
    char *text; /* what the items point into */
    const char *item[GW_LIST_ITEMS];
    int n;
} gw_list;

/** Read `text`; `commas` false: semicolons only. GW_ERR_USAGE: an empty item, unbalanced
 *  parentheses, too many; messages name `owner` and its `option`. Free in any case. */
gw_err gw_list_read(gw_list *out, const char *owner, const char *option, const char *text,
                    bool commas);
void gw_list_free(gw_list *list);

#endif
