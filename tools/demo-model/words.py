"""The words of the demo stories: who there is, where they live and what they own.

The lists are long on purpose. A model that sees a hundred different things in the same frames
learns to carry the thing it was asked for through a story, and not only the commonest ones.
"""

GIRLS = """Mia Lily Anna Ruby Nora Ella Zoe Clara Ivy Maya Rosa Lucy Tara Emma Sara Hana Amina
Freya Olga Priya Nina Alma Greta Iris Juno Kira Lena Mila Noor Paula Rita Sofia Tess Uma Vera
Wanda Yuki Zara Bella Daisy Edith Flora Heidi Inga Jane Kate Leila Molly Nelly Olive Petra Rose
Sally Thea Ada Beth Cora Dora Eva Fatima Gia Holly Lucia Maria Nadia Alice""".split()

BOYS = """Tom Ben Max Leo Sam Noah Finn Jack Omar Theo Hugo Oscar Ravi Milo Eli Adam Luca Felix
Kofi Ivan Anton Bruno Carl David Emil Frank George Henry Igor Jonas Karim Lars Mateo Nico Otto
Paul Quinn Remi Simon Timo Viktor Walter Yusuf Zeno Ali Billy Charlie Daniel Edgar Fred Gus Harry
Isaac Jamal Kenji Liam Martin Ned Oliver Peter Robin Stefan Toby William""".split()

# Names for animals, robots and dragons: they fit any pronoun.
PETS = """Pip Biscuit Clover Hazel Bramble Pebble Juniper Rusty Tilly Bobo Momo Fern Nutmeg Button
Poppy Pepper Ginger Maple Acorn Bean Bubble Cocoa Dot Echo Fig Fizz Honey Jingle Kiwi Lulu Mango
Moss Muffin Nib Olly Patch Peanut Pickle Plum Pudding Quill Raisin Rollo Scout Skip Smudge Snug
Sprout Sunny Tango Tuft Twig Waffle Whisper Willow Wink Ziggy Zuzu Basil Cricket Dusty Flick""".split()

SYLLABLES = ("ba be bi bo da de di fi ka ke ki ko la le li lo lu ma me mi mo na ne no "
             "pa po ra re ri ro sa si so ta te to va ve vi za zo").split()
NAME_ENDS = ["", "n", "l", "r", "s", "x", "", "k", "ra", "lin", "nny", "ddy", "bo", "mo", ""]

ANIMALS = """fox rabbit bear mouse owl hedgehog squirrel frog duck cat dog turtle otter badger deer
goat crow penguin elephant lion pony beaver snail lamb tiger monkey panda koala kangaroo giraffe
zebra hippo whale dolphin seal crab parrot robin sparrow swan goose hen rooster pig cow donkey horse
sheep mole bat lizard camel wolf puppy kitten chick raccoon moose bee ladybug butterfly spider
caterpillar cricket toad octopus starfish walrus hamster peacock pelican seagull dinosaur""".split()

FANTASY = "dragon robot unicorn giant fairy ghost elf troll wizard snowman gnome".split()
ROYALS = [("princess", "she"), ("queen", "she"), ("mermaid", "she"), ("witch", "she"),
          ("prince", "he"), ("knight", None), ("king", "he"), ("pirate", None)]

JOBS = """baker farmer fisherman shoemaker gardener sailor painter blacksmith miller clockmaker
tailor teacher doctor cook carpenter musician inventor beekeeper shepherd librarian captain
potter weaver astronaut explorer""".split()

TRAITS = ["kind", "curious", "cheerful", "brave", "gentle", "clever", "friendly", "playful", "quiet",
          "shy", "funny", "careful", "dreamy", "busy", "polite", "proud", "stubborn", "lively"]
SIZES = ["little", "small", "young", "tiny"]

HOBBIES = ["sing", "dance", "paint pictures", "climb trees", "read stories", "look at the stars",
           "swim", "bake cookies", "collect shells", "tell jokes", "play hide and seek", "draw maps",
           "jump in puddles", "watch the clouds", "pick berries", "ask questions", "explore",
           "build towers", "help others", "make new friends", "whistle", "count the birds",
           "listen to the wind", "plant flowers", "run down the hill", "fix broken things"]

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
    ("in a snowy land far in the north", "the snowy land",
     ["by the frozen lake", "behind the pine trees", "in the deep snow", "next to the ice cave", "on the white hill"]),
    ("beside a wide blue lake", "the lake",
     ["on the little jetty", "among the reeds", "under the old boat", "near the stepping stones", "by the boathouse"]),
    ("in a warm town in the desert", "the desert",
     ["by the well", "under the date palms", "behind the dunes", "beside the white wall", "near the camel path"]),
    ("in the middle of a wild jungle", "the jungle",
     ["under the giant leaves", "beside the waterfall", "up in the vines", "by the muddy river",
      "near the banana trees"]),
    ("in a sleepy village between two hills", "the village",
     ["by the old well", "on the hilltop", "behind the school", "near the windmill", "in the vegetable garden"]),
    ("on a street full of crooked houses", "the street",
     ["behind the gate", "by the lamp post", "in the garden with the blue fence", "on the doorstep",
      "under the hedge"]),
    ("in a garden full of flowers", "the garden",
     ["among the roses", "under the garden bench", "behind the shed", "by the little pond", "next to the sunflowers"]),
    ("in a harbor full of boats", "the harbor",
     ["on the long dock", "behind the barrels", "under the fishing nets", "by the ropes", "next to the red boat"]),
    ("on a windy hill", "the hill",
     ["by the windmill", "in the tall grass", "under the lonely tree", "behind the stone wall", "near the sheep path"]),
    ("on the moon", "the moon",
     ["behind a gray rock", "in the deep crater", "next to the silver tower", "by the old rocket", "under the moon dust"]),
]

# Where "in" is not the word: in the village, but on the island.
PREPOSITIONS = {"the farm": "on", "the mountain": "on", "the island": "on", "the street": "on", "the hill": "on",
                "the moon": "on", "the lake": "at", "the harbor": "at", "the castle": "at"}

# Things by what they can do. LIGHT shows a way, SOUND calls, WARM comforts, the rest are treasures.
LIGHT = "lantern candle lamp torch".split()
SOUND = [("drum", "beat"), ("whistle", "blew"), ("bell", "rang"), ("flute", "played"), ("horn", "blew"),
         ("trumpet", "blew"), ("violin", "played"), ("guitar", "played"), ("harp", "played"),
         ("music box", "opened")]
WARM = "blanket scarf coat shawl pillow sweater quilt".split()
THINGS = """kite ball key map boat umbrella hat book bicycle shell coin mirror paintbrush clock stone
telescope teapot wagon doll basket ring feather balloon box crown necklace cup spoon button pencil
compass marble puppet watch bucket sled ladder wheel chair backpack shoe mitten ribbon robot toy
puzzle picture letter jar bottle rope broom pot flag star spyglass swing pearl bead""".split()
ADJECTIVES = ["red", "blue", "yellow", "green", "golden", "silver", "shiny", "old", "tiny", "big",
              "wooden", "beautiful", "strange", "magic", "purple", "orange", "pink", "white", "brown",
              "soft", "little", "bright", "round", "dusty", "painted"]

TREATS = ["apple pie", "honey cake", "pancakes", "berry jam", "warm bread", "vegetable soup",
          "cookies", "cherry pie", "cinnamon buns", "carrot cake", "hot chocolate", "plum cake",
          "cheese", "peach pie", "pumpkin soup", "ginger bread", "sweet melon", "roasted nuts"]

WEATHERS = ["sunny", "windy", "cold", "warm", "foggy", "bright", "gray", "rainy", "quiet", "frosty",
            "cloudy", "golden"]
