#include "api/site.h"

#include <string.h>
#include <strings.h>

/* "http://tower:8080" against "tower:8080"; "null" is a page without an origin of its own. */
static bool site_is_same_origin(const char *origin, const char *host)
{
    const char *authority = strstr(origin, "://");
    return authority && host && host[0] && strcasecmp(authority + 3, host) == 0;
}

static bool site_is_same_fetch(const char *fetch_site, bool only_reads)
{
    return strcmp(fetch_site, "same-origin") == 0 ||
           (only_reads && strcmp(fetch_site, "none") == 0); /* typed, or a bookmark */
}

enum site site_of(const struct site_head *head)
{
    if (!head->origin && !head->fetch_site)
        return SITE_PROGRAM;
    if (head->origin && !site_is_same_origin(head->origin, head->host))
        return SITE_OTHER;
    if (head->fetch_site && !site_is_same_fetch(head->fetch_site, head->only_reads))
        return SITE_OTHER;
    return SITE_OWN;
}

bool site_takes_cookie(enum site site, bool only_reads)
{
    return site == SITE_OWN || (site == SITE_PROGRAM && only_reads);
}

bool site_is_json(const char *content_type)
{
    static const char json[] = "application/json";
    if (!content_type || strncasecmp(content_type, json, sizeof json - 1) != 0)
        return false;
    const char after = content_type[sizeof json - 1];
    return after == '\0' || after == ';' || after == ' ' || after == '\t';
}
