#include "model/unicode.h"

#include <utf8proc.h>

size_t unicode_length(char first)
{
    unsigned char byte = (unsigned char)first;
    if (byte < 0xC0)
        return 1;
    if (byte < 0xE0)
        return 2;
    return byte < 0xF0 ? 3 : 4;
}

static uint32_t unicode_invalid(size_t *length)
{
    *length = 1;
    return UNICODE_REPLACEMENT;
}

uint32_t unicode_decode(const char *text, size_t size, size_t *length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    if (bytes[0] < 0x80) {
        *length = 1;
        return bytes[0];
    }
    size_t needed = unicode_length(text[0]);
    if (needed == 1 || needed > size || bytes[0] >= 0xF8)
        return unicode_invalid(length);
    uint32_t code_point = bytes[0] & (0x7Fu >> needed);
    for (size_t i = 1; i < needed; i++) {
        if ((bytes[i] & 0xC0) != 0x80)
            return unicode_invalid(length);
        code_point = code_point << 6 | (bytes[i] & 0x3Fu);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800,
                                     0x10000}; /* below it the form is overlong */
    if (code_point > UNICODE_MAX || code_point < least[needed])
        return unicode_invalid(length);
    *length = needed;
    return code_point;
}

size_t unicode_encode(uint32_t code_point, char out[4])
{
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    size_t length = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code_point & 0x3F));
        code_point >>= 6;
    }
    out[0] = (char)((0xF00u >> length & 0xF0u) | code_point);
    return length;
}

bool unicode_is_space(uint32_t code_point)
{
    return (code_point >= 0x09 && code_point <= 0x0D) || code_point == 0x20 || code_point == 0x85 ||
           code_point == 0xA0 || code_point == 0x1680 ||
           (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 ||
           code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F ||
           code_point == 0x3000;
}

bool unicode_is_han(uint32_t code_point)
{
    static const uint32_t blocks[][2] = {
        {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
        {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
        {0x2B820, 0x2CEAF}, {0x2CEB0, 0x2EBEF}, {0x2F800, 0x2FA1F},
    };
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        if (code_point >= blocks[i][0] && code_point <= blocks[i][1])
            return true;
    }
    return false;
}

static uint8_t class_of_category(utf8proc_category_t category)
{
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO)
        return CLASS_LETTER;
    if (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME)
        return CLASS_MARK;
    if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO)
        return CLASS_NUMBER;
    if (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO)
        return CLASS_PUNCTUATION;
    if (category >= UTF8PROC_CATEGORY_SM && category <= UTF8PROC_CATEGORY_SO)
        return CLASS_SYMBOL;
    return CLASS_OTHER;
}

uint8_t unicode_class(uint32_t code_point)
{
    if (code_point < 0x80)
        return (uint8_t)code_point;
    if (unicode_is_space(code_point))
        return CLASS_SPACE;
    return class_of_category(utf8proc_category((utf8proc_int32_t)code_point));
}

uint32_t unicode_lower(uint32_t code_point)
{
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)code_point);
}

uint32_t unicode_base(uint32_t code_point)
{
    enum { PARTS_MAX = 32 }; /* canonical ones are four at most */
    utf8proc_int32_t parts[PARTS_MAX];
    int last = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)code_point, parts,
                                                       PARTS_MAX, UTF8PROC_DECOMPOSE, &last);
    return n > 0 ? (uint32_t)parts[0] : code_point;
}

/* Three runs of bytes have no visible character of their own: 0-32, 127-160 and 173. */
enum { RUN_A = 33, RUN_B = 34, RUN_A_END = 32, RUN_B_START = 127, RUN_B_END = 160, RUN_C = 173 };

uint32_t byte_alphabet_encode(uint8_t byte)
{
    if (byte <= RUN_A_END)
        return 0x100u + byte;
    if (byte >= RUN_B_START && byte <= RUN_B_END)
        return 0x100u + RUN_A + (byte - (unsigned)RUN_B_START);
    if (byte == RUN_C)
        return 0x100u + RUN_A + RUN_B;
    return byte;
}

int byte_alphabet_decode(uint32_t code_point)
{
    if (code_point < 0x100)
        return byte_alphabet_encode((uint8_t)code_point) == code_point ? (int)code_point : -1;
    uint32_t nth = code_point - 0x100;
    if (nth < RUN_A)
        return (int)nth;
    if (nth < RUN_A + RUN_B)
        return (int)nth - RUN_A + RUN_B_START;
    return nth == RUN_A + RUN_B ? RUN_C : -1;
}
