"""What the demo's traffic is made of."""

from __future__ import annotations

MODEL_NAME = "minilm"  # what requests call it

TOPICS: dict[str, tuple[str, ...]] = {
    "weather": (
        "heavy rain and strong wind from the west are expected tonight",
        "the storm brought thunder, lightning and hail over the valley",
        "a cold front with snow and frost moves in from the north",
        "sunny and warm tomorrow, with a few clouds in the afternoon",
    ),
    "food": (
        "chop the onions and fry them in butter until they are golden",
        "a soup of lentils, carrots and garlic, served with fresh bread",
        "knead the dough, let it rise and bake it in a hot oven",
        "season the sauce with salt, pepper and a spoon of vinegar",
    ),
    "sport": (
        "the home team scored twice in the second half of the match",
        "she won the race and broke the record over ten kilometres",
        "the goalkeeper saved a penalty in the last minute of the game",
        "after a long rally he lost the set and then the match",
    ),
    "music": (
        "the orchestra tuned its violins before the concert began",
        "she sang the old song with a guitar and a quiet drum",
        "the second movement of the symphony is slow and in minor",
        "the band recorded its new album in a small studio",
    ),
    "computing": (
        "the server ran out of memory and the process was killed",
        "write a test first, then the function, then run the program",
        "the compiler reports an error in the third line of the code",
        "a load balancer sends each request to one of many servers",
    ),
    "medicine": (
        "the doctor listened to the heart and lungs of the patient",
        "take one tablet twice a day after meals against the pain",
        "the nurse changed the bandage and measured the fever",
        "the scan showed a small fracture of the left wrist",
    ),
    "money": (
        "the bank raised the interest rate by a quarter of a percent",
        "shares fell after the company reported a loss for the year",
        "the tax on profits is due at the end of the quarter",
        "she invests a part of her salary in bonds and funds",
    ),
    "travel": (
        "the night train leaves the station from platform four",
        "our flight was delayed and we missed the connection in Rome",
        "the ferry to the island sails from the old harbour at noon",
        "they booked a hotel near the beach for the summer holiday",
    ),
}

SENTENCES: tuple[str, ...] = tuple(sentence for sentences in TOPICS.values() for sentence in sentences)
