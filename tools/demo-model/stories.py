#!/usr/bin/env python3
"""Makes short children's stories, and chats that ask for one, from a seed and nothing else.

A story is drawn in two steps: first a world (a hero, a friend, an elder, a place, a thing), then a
plot whose texts are filled from that world. Because every name comes from the world, whoever is met
at the start is still there at the end.

    ./stories.py 3          three plain stories
    ./stories.py --chat 3   three chats
"""

import argparse
import random
import re
from dataclasses import dataclass, field

import words
from plots import PLOTS

USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"

PRONOUNS = {"he": ("he", "him", "his", "himself"), "she": ("she", "her", "her", "herself")}


def article(noun):
    """The noun with "a" or "an". By letter, which holds for all the words here but "unicorn"."""
    return ("an " if noun[0] in "aeio" or noun[:3] in ("umb", "und", "ugl") else "a ") + noun


def capital(text):
    return text[:1].upper() + text[1:]


@dataclass
class Being:
    """Somebody in a story. `intro` is how they are first met: "a brave little girl named Mia"."""
    name: str
    kind: str
    pronoun: str
    group: str  # child, animal, fantasy, royal or job
    trait: str = ""
    intro: str = ""


@dataclass
class Story:
    text: str
    theme: str
    hero: Being
    friend: Being
    values: dict
    moral: str
    used: set = field(default_factory=set)  # whose names the text mentions, of "f" and "e"


# ---- the world ---------------------------------------------------------------------------------


def draw_name(rng, group, pronoun, taken):
    while True:
        if group in ("animal", "fantasy"):
            name = rng.choice(words.PETS)
        else:
            name = rng.choice(words.GIRLS if pronoun == "she" else words.BOYS)
        if name not in taken:
            taken.add(name)
            return name


def draw_kind(rng, groups):
    """A group of the weighted ones given, a kind of it, and the pronoun that it asks for."""
    group = rng.choices(list(groups), list(groups.values()))[0]
    pronoun = rng.choice(["he", "she"])
    if group == "child":
        return group, "girl" if pronoun == "she" else "boy", pronoun
    if group == "royal":
        kind, fixed = rng.choice(words.ROYALS)
        return group, kind, fixed or pronoun
    return group, rng.choice({"animal": words.ANIMALS, "fantasy": words.FANTASY, "job": words.JOBS}[group]), pronoun


def draw_being(rng, groups, taken, pronoun=None):
    group, kind, own = draw_kind(rng, groups)
    while kind in taken or (pronoun and own != pronoun):
        group, kind, own = draw_kind(rng, groups)
    taken.add(kind)
    return Being(draw_name(rng, group, own, taken), kind, own, group)


def describe(rng, being, traits):
    """Draws the hero's trait and size: "a shy little fox named Pip"."""
    being.trait = rng.choice(traits)
    size = rng.choice(words.SIZES) if being.group in ("child", "animal") and being.kind != "giant" else "young"
    shape = rng.choice(["{t} {s} {k}", "{t} {k}", "{s} {k}", "{t} {k}", "{k}"])
    adjectives = shape.format(t=being.trait, s=size, k=being.kind)
    if being.trait not in adjectives:
        being.trait = ""
    being.intro = f"{article(adjectives)} {rng.choice(['named', 'named', 'called'])} {being.name}"


def draw_cast(rng, traits):
    taken = set()
    hero = draw_being(rng, {"child": 4, "animal": 5, "fantasy": 1, "royal": 0.8, "job": 1}, taken)
    describe(rng, hero, traits)
    # A friend of the other pronoun, mostly: then "she" and "he" can only mean one of them.
    other = {"he": "she", "she": "he"}[hero.pronoun]
    friend = draw_being(rng, {"child": 2, "animal": 5, "fantasy": 0.7}, taken, other if rng.random() < 0.8 else None)
    friend.intro = f"{article(friend.kind)} {rng.choice(['named', 'named', 'called'])} {friend.name}"
    elder = draw_being(rng, {"animal": 2, "job": 3, "fantasy": 0.3}, taken)
    elder.intro = f"{article(rng.choice(['old', 'wise', 'wise old', 'old']) + ' ' + elder.kind)} named {elder.name}"
    return hero, friend, elder


GUIDES = {
    "map": "{He} unfolded the map and found the right path",
    "compass": "The compass showed them which way to go",
    "rope": "They both held on to the rope, so that they would not lose each other",
    "umbrella": "They both fit under the umbrella, and so they stayed dry",
    "sled": "{He} put the little {b} on the sled and pulled it along",
    "wagon": "{He} put the little {b} in the wagon and pulled it along",
    "basket": "{He} put the little {b} in the basket and carried it",
    "telescope": "{He} looked through the telescope and saw a tiny light far away",
    "mirror": "The mirror caught the light of the moon and showed them the path",
    "flag": "{He} waved the flag high, so that anyone could see them",
    "hat": "{He} put the hat on the head of the little {b}, and it felt safe",
}


def draw_thing(rng, needs):
    """A thing, and how it guides: (noun, text)."""
    kinds = {"light": 3, "sound": 3, "warm": 2, "guide": 3}
    if needs != "guide":
        kinds["any"] = 14
    kind = rng.choices(list(kinds), list(kinds.values()))[0]
    if kind == "light":
        thing = rng.choice(words.LIGHT)
        return thing, rng.choice([f"{{He}} lit the {thing}, and its warm light showed them the path",
                                  f"The {thing} glowed softly and showed them the way"])
    if kind == "sound":
        thing, verb = rng.choice(words.SOUND)
        return thing, rng.choice([f"{{He}} {verb} the {thing}, so that anyone near would hear them",
                                  f"{{He}} {verb} the {thing}, and its sound made them feel brave"])
    if kind == "warm":
        thing = rng.choice(words.WARM)
        return thing, f"{{He}} wrapped the {thing} around the little {{b}}, and it stopped shivering"
    if kind == "guide":
        return rng.choice(list(GUIDES.items()))
    return rng.choice(words.THINGS), ""


def pronoun_values(prefix, being):
    forms = dict(zip(("he", "him", "his", "himself"), PRONOUNS[being.pronoun]))
    values = {prefix + key: form for key, form in forms.items()}
    values.update({capital(prefix + key): capital(form) for key, form in forms.items()})
    return values


def draw_world(rng, plot):
    """Everything that the texts of a plot may name."""
    hero, friend, elder = draw_cast(rng, plot.get("traits", words.TRAITS))
    where, place, spots = rng.choice(words.PLACES)
    spots = rng.sample(spots, 3)
    thing, guide = draw_thing(rng, plot.get("needs"))
    # No adjective that is part of the thing's own use: a "soft drum" is odd, but stories forgive it.
    adjective = rng.choice(words.ADJECTIVES)
    values = {"h": hero.name, "kind": hero.kind, "where": where, "place": place,
              "in_place": f"{words.PREPOSITIONS.get(place, 'in')} {place}",
              "obj": thing, "adj": adjective, "aobj": article(f"{adjective} {thing}"), "guide": guide,
              "treat": rng.choice(words.TREATS), "day": rng.choice(words.WEATHERS), "hobby": rng.choice(words.HOBBIES),
              "trait": hero.trait or rng.choice(plot.get("traits", words.TRAITS)),
              "home": rng.choice(words.HOMES_CHILD if hero.group == "child" else words.HOMES_ANY),
              "glad": rng.choice(["happy", "glad", "proud", "cheerful"])}
    for number, spot in enumerate(spots, 1):
        noun = re.sub(r"^(up in|next to|on|in|at|by|near|under|behind|inside|among|beside) ", "", spot)
        values.update({f"s{number}": spot, f"s{number}n": noun, f"s{number}n_to": "to " + noun})
    for prefix, being in (("", hero), ("f", friend), ("e", elder)):
        values.update(pronoun_values(prefix, being))
    for options in plot["slots"]:
        values.update(rng.choice(options))
    if "first" in values:  # one wishes for a thing, but to do or that something be
        values["forfirst"] = ("for " if values["first"].startswith("a ") else "") + values["first"]
    return hero, friend, elder, values


# ---- texts -------------------------------------------------------------------------------------

INNERMOST = re.compile(r"\[([^\[\]]*)\]")


class Teller:
    """Fills texts from a world, and remembers who has been introduced already."""

    def __init__(self, rng, values, friend, elder):
        self.rng, self.values = rng, values
        self.beings = {"f": friend, "e": elder}
        self.met = set()

    def tell(self, text):
        while INNERMOST.search(text):
            text = INNERMOST.sub(lambda m: self.rng.choice(m[1].split("|")), text)
        return re.sub(r"\{(\w+)\}", lambda m: self.word(m[1]), text)

    def word(self, key):
        if key.endswith("_cap"):
            return capital(self.word(key[:-4]))
        if key in ("f_a", "e_a"):
            key = key[0]
        elif key.startswith("a_"):
            return article(self.word(key[2:]))
        if key in self.beings:
            return self.meet(key)
        return self.tell(self.values[key])

    def meet(self, key):
        """The name; at the first mention, who it is."""
        being = self.beings[key]
        if key in self.met:
            return being.name
        self.met.add(key)
        return being.intro


def sentence_case(text):
    text = re.sub(r'(^|[.!?]\s+|\n)("?)([a-z])', lambda m: m[1] + m[2] + m[3].upper(), text)
    return re.sub(r"([.!?])\.", r"\1", text)


OPENINGS = [
    "Once upon a time, there was {intro} who lived {where}.",
    "Once upon a time, {where}, there lived {intro}.",
    "Once upon a time there was {intro}. {He} lived {home}, {where}.",
    "There once was {intro}, who lived {where}.",
    "{where_cap}, there lived {intro}.",
    "Long ago, {where}, there lived {intro}.",
    "{where_cap} lived {intro}.",
    "{intro_cap} lived {home} {where}.",
    "This is the story of {intro}, who lived {where}.",
    "A long time ago there was {intro}. {h} lived {home}, {where}.",
    "Far away, {where}, lived {intro}.",
]
HABITS = [
    "{He} loved to {hobby}.", "{h} liked to {hobby} more than anything.", "Every day {he} liked to {hobby}.",
    "What {he} liked best was to {hobby}.", "", "",
]
TRAITS = [  # only where the trait has not been said by the opening
    "{He} was {trait} and loved to {hobby}.", "Everyone knew that {h} was {trait}.",
    "{h} was {trait}, and {he} liked to {hobby}.",
]
CLOSINGS = [
    "From that day on, {after}.", "And ever since, {after}.", "From then on, {after}. {h} had learned that {moral}.",
    "{h} never forgot that {moral}.", "And so {h} learned that {moral}.",
    "That night, {h} fell asleep with a smile. {He} knew now that {moral}.",
    "{h} learned something that day: {moral}.", "From that day on, {after}, because {moral}.",
    "And if you ask {h}, {he} will tell you that {moral}.", "After that day, {after}.",
    "{h} went to bed {glad} that evening, for {he} had learned that {moral}.",
]


def paragraphs(rng, parts):
    """Joins the parts to two to five paragraphs; the opening and the first beat often are one."""
    text = parts[0]
    for part in parts[1:]:
        text += (" " if rng.random() < 0.3 else "\n\n") + part
    return text


def story(rng, theme=None):
    theme = theme or rng.choice(list(PLOTS))
    plot = PLOTS[theme]
    hero, friend, elder, values = draw_world(rng, plot)
    values.update(moral=rng.choice(plot["moral"]), after=rng.choice(plot["after"]), intro=hero.intro)
    teller = Teller(rng, values, friend, elder)
    opening = " ".join(filter(None, (rng.choice(OPENINGS), rng.choice(HABITS if hero.trait else HABITS + TRAITS))))
    beats = [opening, *(rng.choice(beat) for beat in plot["beats"]), rng.choice(CLOSINGS)]
    text = paragraphs(rng, [teller.tell(beat) for beat in beats])
    if rng.random() < 0.15:
        text += rng.choice([" The end.", "\n\nThe end."])
    # The theme as a person would put it, said after the story so that it draws on the same world.
    asked = teller.tell(rng.choice(plot["theme"]))
    return Story(sentence_case(text), asked, hero, friend, values, teller.tell(values["moral"]), teller.met)


# ---- chats -------------------------------------------------------------------------------------


def hero_phrase(rng, tale):
    hero = tale.hero
    plain = article(hero.kind)
    choices = [plain, plain, f"{plain} named {hero.name}", f"{plain} called {hero.name}", hero.name]
    if hero.trait:
        choices += [article(f"{hero.trait} {hero.kind}"), f"{article(f'{hero.trait} {hero.kind}')} named {hero.name}"]
    return rng.choice(choices)


def subject(rng, tale):
    """What is asked for; only what the story really has."""
    who = hero_phrase(rng, tale)
    choices = [who, who, tale.theme, f"{who} {tale.values['where']}", f"{who} and {tale.theme}"]
    if tale.values["obj"] in tale.text:
        thing = tale.values["obj"]
        choices += [f"{who} and {article(thing)}"] * 4
        choices += [f"{who} with {article(thing)}"]
        if f"{tale.values['adj']} {thing}" in tale.text:
            choices += [f"{who} and {tale.values['aobj']}"] * 2
    if "f" in tale.used:
        choices += [f"{who} and {article(tale.friend.kind)}"] * 3
    return rng.choice(choices)


REQUESTS = [
    "Tell me a story about {x}.", "Tell me a story about {x}.", "Write a story about {x}.", "Write a short story about {x}.",
    "Can you tell me a story about {x}?", "Please tell me a story about {x}.", "I would like a story about {x}.",
    "A story about {x}, please.", "Tell a bedtime story about {x}.", "Make up a story about {x}.",
    "Could you write a story about {x}?", "Story about {x}", "I want to hear about {x}.", "Please write a story about {x}.",
    "Write a story with {x}.", "Tell me about {x}.", "Do you know a story about {x}?", "Give me a story about {x}!",
]
OPEN_REQUESTS = ["Tell me a story.", "Tell me a story!", "Write a story.", "Please tell me a story.", "Can you tell me a story?",
                 "I want a story.", "Tell me a bedtime story.", "A story, please.", "Make up a story.", "Once upon a time",
                 "Write a short story for children.", "Tell me something."]
AGAIN = ["Another one, please.", "Tell me another story.", "One more!", "Again, please.", "Another story, please."]
GREETINGS = ["Hello!", "Hi!", "Hi", "Hello", "Hey there!", "Good morning!", "Good evening!", "Hello, how are you?"]
WELCOMES = ["Hello! Would you like to hear a story?", "Hello! I am well. Shall I tell you a story?",
            "Hi! Tell me what the story should be about.", "Good to see you! What shall I tell you a story about?"]
ABOUT_ME = [
    ("Who are you?", "I am a very small storyteller. Ask me for a story about anything you like!"),
    ("What can you do?", "I can tell short stories. Try to ask me for a story about a fox and a lantern."),
    ("What is your name?", "I have no name. I am a small storyteller. Would you like a story?"),
    ("Thank you!", "You are welcome! Would you like another story?"),
    ("Thanks", "You are welcome! Shall I tell you another one?"),
    ("Goodbye!", "Goodbye! Sleep well, and come back for another story."),
    ("Help", "Ask me for a story, like this: Tell me a story about a girl and a kite."),
]


def request(rng, tale):
    if rng.random() < 0.15:
        asked = rng.choice(OPEN_REQUESTS)
    else:
        asked = rng.choice(REQUESTS).replace("{x}", subject(rng, tale))
    if rng.random() < 0.12:  # people also type without the capital and the full stop
        asked = asked[0].lower() + asked[1:].rstrip(".")
    return asked


def question(rng, tale):
    """A question about the story that has just been told, and its answer."""
    hero, values = tale.hero, tale.values
    he = PRONOUNS[hero.pronoun][0]
    liking = (f"What did {hero.name} like to do?", f"{capital(he)} liked to {values['hobby']}.")
    being = (f"Who was {hero.name}?", f"{hero.name} was {article(hero.kind)}.")
    choices = [
        (f"What did {hero.name} learn?", f"{hero.name} learned that {tale.moral}."),
        ("What is the moral of the story?", f"The moral is that {tale.moral}."),
        (f"Where did {hero.name} live?", f"{hero.name} lived {values['where']}."),
        ("Who is the story about?", f"It is about {hero.intro}."),
        ("Where did it happen?", f"It happened {values['where']}."),
        liking if values["hobby"] in tale.text else being,
    ]
    if "f" in tale.used:
        choices.append((f"Who was {tale.friend.name}?",
                        f"{tale.friend.name} was {article(tale.friend.kind)}, and a friend of {hero.name}."))
    return rng.choice(choices)


def small_talk(rng):
    return (rng.choice(GREETINGS), rng.choice(WELCOMES)) if rng.random() < 0.5 else rng.choice(ABOUT_ME)


def chat(rng):
    """The turns of a chat: (what the user says, what is answered)."""
    turns = []
    if rng.random() < 0.06:
        turns.append(small_talk(rng))
        if rng.random() < 0.4:
            return turns
    tale = story(rng)
    turns.append((request(rng, tale), tale.text))
    what_next = rng.random()
    if what_next < 0.22:
        turns.append(question(rng, tale))
    elif what_next < 0.30:
        tale = story(rng)
        again = rng.choice(AGAIN) if rng.random() < 0.5 else request(rng, tale)
        turns.append((again, tale.text))
    elif what_next < 0.33:
        turns.append(ABOUT_ME[rng.choice([3, 4, 5])])
    return turns


def render(turns):
    """As the chat template in the GGUF renders it."""
    return "".join(f"{USER}\n{asked}{END}\n{ASSISTANT}\n{answer}{END}\n" for asked, answer in turns)


def document(rng, chats=0.6):
    """One text to train on, up to and with its last end mark."""
    if rng.random() < chats:
        return render(chat(rng)).rstrip("\n")
    return story(rng).text + END


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chat", action="store_true")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    for _ in range(options.count):
        print(render(chat(rng)) if options.chat else story(rng).text, end="\n\n----\n\n")


if __name__ == "__main__":
    main()
