/* 256 words that are short, common, and at least two letters apart from each other. */
#include "join/join_words.h"

#include <stdio.h>

static const char *const words[256] = {
    "acorn",    "almond",  "anchor",  "ankle",    "apple",   "apron",   "arrow",    "atlas",
    "autumn",   "badge",   "bagel",   "bamboo",   "banjo",   "barrel",  "basket",   "beacon",
    "beaver",   "bench",   "berry",   "bishop",   "blanket", "bonnet",  "bottle",   "bowl",
    "branch",   "bread",   "brick",   "bridge",   "bronze",  "brush",   "bucket",   "butter",
    "button",   "cabin",   "cactus",  "camel",    "candle",  "canoe",   "canyon",   "caravan",
    "carpet",   "cashew",  "cattle",  "cedar",    "cellar",  "cherry",  "chimney",  "cider",
    "circle",   "citrus",  "clay",    "cliff",    "clover",  "cobra",   "coffee",   "comet",
    "copper",   "coral",   "corner",  "cotton",   "cradle",  "crater",  "crown",    "crystal",
    "curtain",  "dagger",  "daisy",   "desert",   "diamond", "dinner",  "dolphin",  "dome",
    "dragon",   "drum",    "eagle",   "easel",    "echo",    "elbow",   "elephant", "ember",
    "engine",   "fabric",  "falcon",  "feather",  "fender",  "fennel",  "fiddle",   "finger",
    "flame",    "flute",   "forest",  "fossil",   "fox",     "garden",  "garlic",   "giraffe",
    "glacier",  "goblet",  "granite", "grape",    "gravel",  "guitar",  "hammer",   "harbor",
    "harvest",  "hazel",   "helmet",  "heron",    "hill",    "hollow",  "honey",    "horizon",
    "hornet",   "husky",   "iceberg", "igloo",    "island",  "ivory",   "jacket",   "jaguar",
    "jasmine",  "jelly",   "jewel",   "jigsaw",   "jungle",  "kayak",   "kettle",   "kitten",
    "ladder",   "lagoon",  "lantern", "laurel",   "lemon",   "leopard", "lettuce",  "lily",
    "lion",     "lizard",  "lobster", "lotus",    "magnet",  "mango",   "maple",    "marble",
    "meadow",   "melon",   "mirror",  "monkey",   "mosaic",  "moss",    "mountain", "muffin",
    "mustard",  "napkin",  "needle",  "nest",     "nickel",  "nutmeg",  "oasis",    "ocean",
    "octopus",  "olive",   "onion",   "orange",   "orbit",   "orchid",  "otter",    "oyster",
    "palace",   "panda",   "paper",   "paprika",  "parrot",  "parsley", "peach",    "peacock",
    "pebble",   "pelican", "pencil",  "pepper",   "piano",   "picnic",  "pigeon",   "pine",
    "pirate",   "planet",  "plaza",   "plum",     "pocket",  "pony",    "potato",   "prairie",
    "puddle",   "pumpkin", "puzzle",  "quarry",   "quilt",   "rabbit",  "radish",   "raft",
    "rainbow",  "raven",   "ribbon",  "river",    "robin",   "rooster", "saddle",   "saffron",
    "salmon",   "sandal",  "scarf",   "shadow",   "shell",   "shovel",  "silver",   "sparrow",
    "spider",   "spinach", "sponge",  "squirrel", "stable",  "statue",  "summer",   "sunset",
    "swallow",  "tailor",  "teapot",  "temple",   "thimble", "thunder", "tiger",    "timber",
    "toast",    "tomato",  "tower",   "trumpet",  "tulip",   "tunnel",  "turtle",   "tuxedo",
    "umbrella", "urchin",  "valley",  "vanilla",  "velvet",  "village", "violet",   "volcano",
    "vulture",  "waffle",  "wagon",   "walnut",   "willow",  "window",  "winter",   "zebra",
};

const char *join_word(uint8_t value)
{
    return words[value];
}

void join_words_text(const uint8_t value[JOIN_WORDS], char text[JOIN_WORDS_TEXT])
{
    snprintf(text, JOIN_WORDS_TEXT, "%s %s %s %s", words[value[0]], words[value[1]],
             words[value[2]], words[value[3]]);
}
