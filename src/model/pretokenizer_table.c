/* The rules by name. To add one: a row, with the regex of the model's tokenizer.json written in
 * the classes below, and its names. Words of caution for regexes over classes:
 *  - [^a-z] in such a regex means every letter but a-z, beyond ASCII too; hence UPPER and LOWER.
 *  - no (?i:), no \p, no \w, no \b: classes have no letter case and no word characters;
 *  - nothing that rescans: a run of a million characters must be matched in linear time. */
#include "model/pretokenizer.h"

#include <string.h>

/* Contents of a bracket, from what Unicode says of ASCII and enum unicode_class for the rest. */
#define NUMBER "0-9\xD1"
#define LETTER "A-Za-z\xD2"
#define UPPER "A-Z\xD2" /* letters that are not a-z */
#define LOWER "a-z\xD2" /* letters that are not A-Z */
#define PUNCTUATION "!-#%-*,-/:;?@\\[-\\]_{}\xD3"
#define SYMBOL "$+<=>\\^`|~\xD5"
#define MARK "\xD4"
#define HAN "\xD6"

#define CONTRACTION "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define SPACES "\\s+(?!\\S)|\\s+"
#define LINES_SPACES "\\s*[\\r\\n]+|" SPACES
/* An optional character that is no letter, number or line end, then the word. */
#define LEAD "[^\\r\\n" LETTER NUMBER "]?"
#define OTHERS_LINES " ?[^\\s" LETTER NUMBER "]+[\\r\\n]*"

#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?[" LETTER "]+| ?[" NUMBER "]+| ?[^\\s" LETTER NUMBER "]+|" SPACES
#define LLAMA3(DIGITS)                                                                             \
    CONTRACTION "|" LEAD "[" LETTER "]+|[" NUMBER "]" DIGITS "|" OTHERS_LINES "|" LINES_SPACES
/* Words in which upper case comes before lower case. */
#define CASED(SUFFIX)                                                                              \
    LEAD "[" UPPER "]*[" LOWER "]+" SUFFIX "|" LEAD "[" UPPER "]+[" LOWER "]*" SUFFIX "|"
#define OTHERS_SLASHES " ?[^\\s" LETTER NUMBER "]+[\\r\\n/]*|"
#define ASCII_PUNCTUATION "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define NOT_WORD_NOR_SIGN "[^\\r\\n" LETTER PUNCTUATION SYMBOL "]"
#define DEEPSEEK3_WORD                                                                             \
    ASCII_PUNCTUATION "[A-Za-z]+|" NOT_WORD_NOR_SIGN "?[" LETTER MARK "]+| ?[" PUNCTUATION SYMBOL  \
                      "]+"
/* Code points: ideographs in use before Unicode 4.1, Hiragana, Katakana. */
#define HAN_KANA "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define DEEPSEEK_CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define NO_SENTENCE_END                                                                            \
    " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"

/* DeepSeek LLM's list of cased letters (Lu, Ll, Lt of an older Unicode). */
#define DEEPSEEK_LETTERS                                                                           \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{"    \
    "293}\\x{295}-\\x{2AF}"                                                                        \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}"  \
    "\\x{38E}-\\x{3A1}"                                                                            \
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{"  \
    "13A0}-\\x{13F5}"                                                                              \
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{"   \
    "1D77}\\x{1D79}-\\x{"                                                                          \
    "1D9A}"                                                                                        \
    "\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{"   \
    "1F57}\\x{1F59}\\x{"                                                                           \
    "1F5B}"                                                                                        \
    "\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{"    \
    "1FC4}\\x{1FC6}-\\x{"                                                                          \
    "1FCC}"                                                                                        \
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{"   \
    "1FFC}\\x{2102}\\x{"                                                                           \
    "2107}"                                                                                        \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{"     \
    "212D}\\x{212F}-\\x{2134}"                                                                     \
    "\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{"     \
    "2C7B}\\x{2C7E}-\\x{2CE4}"                                                                     \
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{"    \
    "A76F}\\x{A771}-\\x{"                                                                          \
    "A787}"                                                                                        \
    "\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{"   \
    "FF3A}\\x{FF41}-\\x{"                                                                          \
    "FF5A}"                                                                                        \
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{"     \
    "10CC0}-\\x{10CF2}"                                                                            \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
#define DEEPSEEK_PUNCTUATION                                                                       \
    "!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}"

/* Scripts that AFMoE keeps apart: Han, kana, Thai, Lao, Khmer, Myanmar, Hangul. */
#define AFMOE_SCRIPTS                                                                              \
    "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{3040}-\\x{309F}\\x{30A0}-\\x{"  \
    "30FF}"                                                                                        \
    "\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{E7F}\\x{E80}-\\x{EFF}\\x{1780}-\\x{17FF}"  \
    "\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{"   \
    "11FF}]+"
#define YOUTU_SCRIPTS                                                                              \
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|"                                                   \
    "[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}"  \
    "\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|" HAN_KANA

static const struct pretokenizer_rule rules[] = {
    {"default",
     0,
     {{SPLIT_CLASSES, "[" PUNCTUATION "$+<=>\\^~|]+"},
      {SPLIT_CLASSES, GPT2},
      {SPLIT_CLASSES, "[" NUMBER "]+"},
      {SPLIT_CLASSES, "[0-9][0-9][0-9]"}}},
    {"gpt-2 phi-2 jina-es jina-de gigachat jina-v1-en jina-v2-es jina-v2-de jina-v2-code "
     "roberta-bpe a.x-4.0 mellum "
     "modern-bert exaone4 mpt olmo jais",
     0,
     {{SPLIT_CLASSES, GPT2}}},
    {"trillion granite-docling", PRE_KEEP_SPACES, {{SPLIT_CLASSES, GPT2}}},
    {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     PRE_IGNORE_MERGES | PRE_ADD_BOS,
     {{SPLIT_CLASSES, LLAMA3("{1,3}")}}},
    {"dbrx smaug-bpe", 0, {{SPLIT_CLASSES, LLAMA3("{1,3}")}}},
    {"chatglm-bpe", PRE_NO_BOS, {{SPLIT_CLASSES, LLAMA3("{1,3}")}}},
    {"glm4 glm5", PRE_NO_BOS | PRE_IGNORE_MERGES, {{SPLIT_CLASSES, LLAMA3("{1,3}")}}},
    {"stablelm2 megrez", 0, {{SPLIT_CLASSES, LLAMA3("")}}},
    {"qwen2 deepseek-r1-qwen kormo f2llmv2 hunyuan solar-open grok-2",
     PRE_KEEP_SPACES,
     {{SPLIT_CLASSES, LLAMA3("")}}},
    {"qwen35",
     PRE_KEEP_SPACES,
     {{SPLIT_CLASSES, CONTRACTION "|" LEAD "[" LETTER MARK "]+|[" NUMBER
                                  "]| ?[^\\s" LETTER MARK NUMBER "]+[\\r\\n]*|" LINES_SPACES}}},
    {"ufakzeka",
     PRE_KEEP_SPACES,
     {{SPLIT_CLASSES, LEAD "[" LETTER "]+|[" NUMBER "]|" OTHERS_LINES "|" LINES_SPACES}}},
    {"laguna", PRE_KEEP_SPACES, {{SPLIT_CLASSES, "[^\\n]+|\\n+"}, {SPLIT_CLASSES, LLAMA3("")}}},
    {"minicpm5",
     PRE_IGNORE_MERGES,
     {{SPLIT_CLASSES, "[" NUMBER "]{1,3}"}, {SPLIT_CLASSES, LLAMA3("+")}}},
    {"jais-2",
     0,
     {{SPLIT_CLASSES, CONTRACTION
       "|" LEAD "[" LETTER "]+|[" NUMBER "]{1,3}|" OTHERS_LINES
       "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|"
       "\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s"}}},
    {"seed-coder",
     PRE_KEEP_SPACES,
     {{SPLIT_CLASSES, CONTRACTION "|" LEAD "[" LETTER "]+|[" NUMBER "]| ?[^\\s" LETTER NUMBER
                                  "]+|" LINES_SPACES}}},
    {"bailingmoe bailingmoe2 llada-moe",
     PRE_KEEP_SPACES,
     {{SPLIT_CLASSES, "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|" LEAD "[" LETTER "]+|[" NUMBER
                      "]|" OTHERS_LINES "|\\s*[\\r\\n]|" SPACES}}},
    {"exaone-moe", /* phrases: single spaces between words stay inside */
     PRE_KEEP_SPACES,
     {{SPLIT_CLASSES,
       CONTRACTION "|" LEAD "[" LETTER "](?:[" LETTER MARK "]++| (?=[" LETTER "]))*+|[" NUMBER
                   "]| ?[^\\s" LETTER NUMBER "]+[\\r\\n/]?|\\s*[\\r\\n]|" SPACES}}},
    {"tekken",
     PRE_IGNORE_MERGES | PRE_ADD_BOS | PRE_KEEP_SPACES,
     {{SPLIT_CLASSES, CASED("") "[" NUMBER "]|" OTHERS_SLASHES LINES_SPACES}}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2",
     PRE_KEEP_SPACES,
     {{SPLIT_CLASSES, CASED(CONTRACTION "?") "[" NUMBER "]{1,3}|" OTHERS_SLASHES LINES_SPACES}}},
    {"granite-embed-multi-97m",
     PRE_KEEP_SPACES | PRE_IGNORE_MERGES,
     {{SPLIT_CLASSES,
       LEAD "[" UPPER MARK "]*[" LOWER MARK "]+" CONTRACTION "?|" LEAD "[" UPPER MARK
            "]+[" LOWER MARK "]*" CONTRACTION "?|[" NUMBER "]{1,3}|" OTHERS_SLASHES LINES_SPACES}}},
    {"tiny_aya cohere2moe",
     PRE_KEEP_SPACES,
     {{SPLIT_DIGIT_GROUPS, NULL},
      {SPLIT_CLASSES,
       LEAD "[" LETTER MARK "]+" CONTRACTION "?|[" NUMBER "]{1,3}|" OTHERS_SLASHES LINES_SPACES}}},
    {"youtu",
     PRE_KEEP_SPACES | PRE_IGNORE_MERGES,
     {{SPLIT_CODE_POINTS, YOUTU_SCRIPTS},
      {SPLIT_CLASSES,
       LEAD "[" LETTER MARK "]+" CONTRACTION "?|[" NUMBER "]|" OTHERS_SLASHES LINES_SPACES}}},
    {"kimi-k2",
     PRE_KEEP_SPACES | PRE_HAN | PRE_NO_MERGES,
     {{SPLIT_CLASSES,
       "[" HAN "]+|[^\\r\\n" LETTER NUMBER HAN "]?[" LETTER "]+" CONTRACTION "?|[" NUMBER
       "]{1,3}| ?[^\\s" LETTER NUMBER HAN "]+[\\r\\n]*|" LINES_SPACES}}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     PRE_KEEP_SPACES,
     {{SPLIT_CLASSES, "[" NUMBER "]{1,3}"},
      {SPLIT_CODE_POINTS, HAN_KANA},
      {SPLIT_CLASSES, DEEPSEEK3_WORD "[\\r\\n]*|" LINES_SPACES}}},
    {"spark2_5",
     PRE_KEEP_SPACES,
     {{SPLIT_CLASSES, "[" NUMBER "]{1,3}"},
      {SPLIT_CODE_POINTS, HAN_KANA},
      {SPLIT_CLASSES, DEEPSEEK3_WORD "|[\\r\\n]|" SPACES},
      {SPLIT_CLASSES, "[" NUMBER "]"}}},
    {"afmoe",
     PRE_KEEP_SPACES,
     {{SPLIT_DIGIT_GROUPS, NULL},
      {SPLIT_CODE_POINTS, AFMOE_SCRIPTS},
      {SPLIT_CLASSES, DEEPSEEK3_WORD "[\\r\\n]*|" LINES_SPACES}}},
    {"deepseek-llm",
     PRE_KEEP_SPACES,
     {{SPLIT_CLASSES, "[\\r\\n]"},
      {SPLIT_CODE_POINTS, "\\s?[" DEEPSEEK_LETTERS "]+"},
      {SPLIT_CODE_POINTS, "\\s?[" DEEPSEEK_PUNCTUATION "]+"},
      {SPLIT_CLASSES, "(?<!\\s)\\s++\\z"},
      {SPLIT_CODE_POINTS, DEEPSEEK_CJK},
      {SPLIT_CLASSES, "[" NUMBER "]+"}}},
    {"deepseek-coder",
     PRE_KEEP_SPACES,
     {{SPLIT_CLASSES, "[\\r\\n]"},
      {SPLIT_CLASSES, "\\s?[" LETTER "]+"},
      {SPLIT_CLASSES, "\\s?[" PUNCTUATION "]+"},
      {SPLIT_CODE_POINTS, DEEPSEEK_CJK},
      {SPLIT_CLASSES, "[" NUMBER "]"}}},
    {"falcon",
     0,
     {{SPLIT_CLASSES, "[" PUNCTUATION "$+<=>\\^~|`]+"},
      {SPLIT_CLASSES, GPT2},
      {SPLIT_CLASSES, "[0-9][0-9][0-9]"}}},
    {"starcoder refact codeshell exaone minerva-7b mellum2",
     0,
     {{SPLIT_CLASSES, "[" NUMBER "]"}, {SPLIT_CLASSES, GPT2}}},
    {"command-r smollm", PRE_KEEP_SPACES, {{SPLIT_CLASSES, "[" NUMBER "]"}, {SPLIT_CLASSES, GPT2}}},
    {"bloom gpt3-finnish", 0, {{SPLIT_CODE_POINTS, NO_SENTENCE_END}}},
    {"poro-chat", PRE_KEEP_SPACES, {{SPLIT_CODE_POINTS, NO_SENTENCE_END}}},
    {"viking",
     PRE_KEEP_SPACES,
     {{SPLIT_CODE_POINTS, NO_SENTENCE_END}, {SPLIT_CLASSES, "[" NUMBER "]"}}},
    {"chameleon",
     PRE_KEEP_SPACES | PRE_ADD_BOS,
     {{SPLIT_CLASSES, "<sentinel:[0-9]+>"},
      {SPLIT_CLASSES, "IMGIMG[A-I]{1,4}Z"},
      {SPLIT_CLASSES, "[\\t\\n]|    |  "},
      {SPLIT_CLASSES, "[" NUMBER "]"},
      {SPLIT_CLASSES, "[" PUNCTUATION "!-/:-@\\[-`{-~]"},
      {SPLIT_CLASSES, GPT2}}},
    {"superbpe", PRE_KEEP_SPACES, {{SPLIT_CLASSES, "[" NUMBER "]+"}, {SPLIT_BEFORE_GROUPS, NULL}}},
    {"gemma4 granite-embed-multi-311m",
     PRE_RAW_UTF8 | PRE_WHOLE_NEWLINES | PRE_ALWAYS_BOS,
     {{SPLIT_CLASSES, "[^\\n]+|\\n+"}}},
    {"sarvam-moe mmbert", PRE_RAW_UTF8 | PRE_KEEP_SPACES, {{SPLIT_CLASSES, "[^\\n]+|\\n+"}}},
};

static bool has_name(const char *names, const char *name, size_t size)
{
    while (*names) {
        size_t length = strcspn(names, " ");
        if (length == size && memcmp(names, name, size) == 0)
            return true;
        names += length + (names[length] == ' ');
    }
    return false;
}

const struct pretokenizer_rule *pretokenizer_rule_at(size_t index)
{
    return index < sizeof rules / sizeof rules[0] ? &rules[index] : NULL;
}

const struct pretokenizer_rule *pretokenizer_rule_find(const char *name, size_t size)
{
    for (size_t i = 0; size && i < sizeof rules / sizeof rules[0]; i++) {
        if (has_name(rules[i].names, name, size))
            return &rules[i];
    }
    return NULL;
}
