"""The words of the demo stories: who there is, where they live and what they own.

Long enough that a model must carry the name it was asked for through a story instead of guessing it,
and short enough that every word is a token of its own: a name in two pieces is far harder to carry.
"""

GIRLS = """Mia Lily Anna Ruby Nora Ella Zoe Clara Ivy Maya Rosa Lucy Tara Emma Sara Hana Nina Alma Lena Daisy""".split()

BOYS = """Tom Ben Max Leo Sam Noah Finn Jack Omar Theo Hugo Oscar Ravi Milo Eli Adam Luca Felix Kofi Ivan""".split()

# Names for animals, robots and dragons: they fit any pronoun.
PETS = """Pip Biscuit Clover Hazel Pebble Rusty Tilly Bobo Momo Fern Nutmeg Button Poppy Pepper Ginger
Maple Bean Cocoa Dot Echo Honey Mango Moss Waffle""".split()

ANIMALS = """fox rabbit bear mouse owl hedgehog squirrel frog duck cat dog turtle otter deer goat crow
penguin elephant lion pony beaver snail lamb tiger monkey panda whale seal parrot goose pig donkey mole wolf""".split()

FANTASY = "dragon robot unicorn giant fairy wizard snowman".split()
ROYALS = [("princess", "she"), ("queen", "she"), ("prince", "he"), ("knight", None), ("king", "he"), ("pirate", None)]

JOBS = """baker farmer shoemaker gardener sailor painter miller clockmaker tailor teacher doctor cook
musician inventor shepherd captain""".split()

TRAITS = ["kind", "curious", "cheerful", "brave", "gentle", "clever", "friendly", "playful", "quiet", "shy",
          "funny", "careful", "proud", "stubborn"]
SIZES = ["little", "small", "young", "tiny"]

HOBBIES = ["sing", "dance", "paint pictures", "climb trees", "read stories", "look at the stars", "swim",
           "bake cookies", "tell jokes", "play hide and seek", "watch the clouds", "pick berries", "explore",
           "help others", "make new friends", "listen to the wind"]

HOMES_CHILD = ["with {his} grandmother", "with {his} mother and father", "with {his} grandfather",
               "with {his} big sister", "with {his} little brother", "with {his} aunt",
               "with {his} father", "with {his} mother", "in a house with a blue door"]
HOMES_ANY = ["in a cozy little house", "in a small round house", "in a house with a green roof",
             "in a tiny house with a red door", "in a quiet corner", "in a warm little home"]

# (where, its short name, spots within it)
PLACES = [
    ("in a small village by the sea", "the village",
     ["by the harbor", "on the beach", "behind the old lighthouse", "near the fish market", "under the wooden pier"]),
    ("at the edge of a deep forest", "the forest",
     ["under the tallest oak", "by the mossy stones", "next to the stream", "inside a hollow log",
      "behind the blackberry bushes"]),
    ("on a quiet farm", "the farm",
     ["behind the red barn", "in the hen house", "by the duck pond", "under the hay", "near the apple trees"]),
    ("in a busy little town", "the town",
     ["in the market square", "by the fountain", "behind the bakery", "near the station",
      "on the steps of the library"]),
    ("high up on a mountain", "the mountain",
     ["by the waterfall", "behind the big rock", "in the cave", "next to the goat path", "under the pine trees"]),
    ("on a tiny island", "the island",
     ["on the sand", "behind the palm trees", "by the rocks", "in the small cave", "near the tide pools"]),
    ("near an old castle", "the castle",
     ["in the tall tower", "by the gate", "in the rose garden", "under the stone stairs", "behind the stables"]),
    ("in a green valley", "the valley",
     ["by the winding river", "on the wooden bridge", "in the tall grass", "under the willow tree",
      "beside the old mill"]),
    ("in a big city", "the city",
     ["in the park", "at the bus stop", "behind the museum", "on the roof", "beside the canal"]),
    ("beside a wide blue lake", "the lake",
     ["on the little jetty", "among the reeds", "under the old boat", "near the stepping stones", "by the boathouse"]),
    ("in a garden full of flowers", "the garden",
     ["among the roses", "under the garden bench", "behind the shed", "by the little pond", "next to the sunflowers"]),
    ("on a windy hill", "the hill",
     ["by the windmill", "in the tall grass", "under the lonely tree", "behind the stone wall", "near the sheep path"]),
    ("on the moon", "the moon",
     ["behind a gray rock", "in the deep crater", "next to the silver tower", "by the old rocket", "under the moon dust"]),
]

# Where "in" is not the word: in the village, but on the island.
PREPOSITIONS = {"the farm": "on", "the mountain": "on", "the island": "on", "the hill": "on", "the moon": "on",
                "the lake": "at", "the castle": "at"}

# Things by what they can do. LIGHT shows a way, SOUND calls, WARM comforts, the rest are treasures.
LIGHT = "lantern candle lamp torch".split()
SOUND = [("drum", "beat"), ("whistle", "blew"), ("bell", "rang"), ("flute", "played"), ("violin", "played")]
WARM = "blanket scarf coat pillow".split()
THINGS = """kite ball key map boat umbrella hat book bicycle shell coin mirror clock stone telescope wagon
doll basket ring feather balloon box crown cup spoon button compass watch bucket sled wheel chair letter
jar bottle rope flag star""".split()
ADJECTIVES = ["red", "blue", "yellow", "green", "golden", "silver", "shiny", "old", "tiny", "big", "wooden",
              "beautiful", "magic", "white", "brown", "little", "bright"]

TREATS = ["apple pie", "honey cake", "pancakes", "warm bread", "vegetable soup", "cookies", "cinnamon buns",
          "hot chocolate", "cheese", "pumpkin soup"]

WEATHERS = ["sunny", "windy", "cold", "warm", "gray", "rainy", "quiet", "cloudy"]
