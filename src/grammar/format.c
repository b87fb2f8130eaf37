/* Formats as regular expressions of the whole string. Sources: RFC 3339 (date-time, date, time,
 * duration), RFC 4122 (uuid), RFC 2673 (ipv4), RFC 4291 (ipv6), RFC 1123 (hostname), RFC 5321
 * (email, its common form), RFC 3986 (uri), RFC 6901 (json-pointer). */
#include "grammar/schema.h"

#include <string.h>

#define FORMAT_MONTH_DAY                                                                           \
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"                \
    "02-(0[1-9]|1[0-9]|2[0-8]))"
/* Years with a 29th of February. */
#define FORMAT_LEAP "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29"
#define FORMAT_DATE "([0-9]{4}-" FORMAT_MONTH_DAY "|" FORMAT_LEAP ")"
#define FORMAT_TIME                                                                                \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define FORMAT_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define FORMAT_IPV4 FORMAT_BYTE "(\\." FORMAT_BYTE "){3}"
#define FORMAT_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define H "[0-9a-fA-F]{1,4}"
#define FORMAT_IPV6                                                                                \
    "((" H ":){7}" H "|(" H ":){1,7}:|(" H ":){1,6}:" H "|(" H ":){1,5}(:" H "){1,2}|"             \
    "(" H ":){1,4}(:" H "){1,3}|(" H ":){1,3}(:" H "){1,4}|(" H ":){1,2}(:" H "){1,5}|" H ":(:" H  \
    "){1,6}|:((:" H "){1,7}|:))"

static const struct {
    const char *name, *expression;
} formats[] = {
    {"date", FORMAT_DATE},
    {"time", FORMAT_TIME},
    {"date-time", FORMAT_DATE "[Tt]" FORMAT_TIME},
    {"duration", "P([0-9]+W|([0-9]+D|[0-9]+M([0-9]+D)?|[0-9]+Y([0-9]+M([0-9]+D)?)?)"
                 "(T([0-9]+S|[0-9]+M([0-9]+S)?|[0-9]+H([0-9]+M([0-9]+S)?)?))?|"
                 "T([0-9]+S|[0-9]+M([0-9]+S)?|[0-9]+H([0-9]+M([0-9]+S)?)?))"},
    {"uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
    {"ipv4", FORMAT_IPV4},
    {"ipv6", FORMAT_IPV6},
    {"hostname", FORMAT_LABEL "(\\." FORMAT_LABEL "){0,3}"},
    {"email", "[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@" FORMAT_LABEL "(\\." FORMAT_LABEL "){1,3}"},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9.-]+(:[0-9]{1,5})?"
            "(/([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)?"
            "(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
            "(#([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"},
    {"json-pointer", "(/([^~/]|~[01])*)*"},
};

const char *format_expression(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].expression;
    }
    return NULL;
}
