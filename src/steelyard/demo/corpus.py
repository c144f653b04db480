"""What the demo's traffic is made of."""

from __future__ import annotations

MODEL_NAME = "minilm"  # what requests call it

TOPICS: dict[str, tuple[str, ...]] = {
    "weather": (
        "heavy rain and strong wind from the west are expected tonight",
        "the storm brought thunder, lightning and hail over the valley",
        "a cold front with snow and frost moves in from the north",
        "sunny and warm tomorrow, with a few clouds in the afternoon",
        "fog in the morning, then rain showers and a fresh wind",
        "the temperature falls below zero and the roads turn icy",
        "after weeks of drought the first rain fell on dry ground",
        "the forecast promises clear skies, sunshine and a mild breeze",
    ),
    "food": (
        "chop the onions and fry them in butter until they are golden",
        "a soup of lentils, carrots and garlic, served with fresh bread",
        "knead the dough, let it rise and bake it in a hot oven",
        "season the sauce with salt, pepper and a spoon of vinegar",
        "the restaurant serves grilled fish with lemon and potatoes",
        "melt the chocolate, stir in the cream and let the cake cool",
        "boil the pasta and mix it with tomato sauce and cheese",
        "for breakfast they eat eggs, toast, honey and ripe fruit",
    ),
    "sport": (
        "the home team scored twice in the second half of the match",
        "she won the race and broke the record over ten kilometres",
        "the goalkeeper saved a penalty in the last minute of the game",
        "after a long rally he lost the set and then the match",
        "the coach changed three players before the cup final",
        "the cyclist attacked on the last climb and won the stage",
        "their striker was injured in training and misses the season",
        "the swimmers train twice a day for the championship",
    ),
    "music": (
        "the orchestra tuned its violins before the concert began",
        "she sang the old song with a guitar and a quiet drum",
        "the second movement of the symphony is slow and in minor",
        "the band recorded its new album in a small studio",
        "he practises scales on the piano for an hour every day",
        "the choir rehearses the chorus, sopranos first, then basses",
        "a trumpet solo over the rhythm of bass and drums",
        "the composer wrote the opera and conducted its premiere",
    ),
    "computing": (
        "the server ran out of memory and the process was killed",
        "write a test first, then the function, then run the program",
        "the compiler reports an error in the third line of the code",
        "a load balancer sends each request to one of many servers",
        "the model runs on a graphics card and batches its requests",
        "the database keeps an index so that the query is fast",
        "install the package, start the program and read its log",
        "the network dropped packets and the connection timed out",
    ),
    "medicine": (
        "the doctor listened to the heart and lungs of the patient",
        "take one tablet twice a day after meals against the pain",
        "the nurse changed the bandage and measured the fever",
        "the scan showed a small fracture of the left wrist",
        "an infection of the throat is treated with antibiotics",
        "the surgeon operated on the knee for almost two hours",
        "vaccines protect children from measles and other diseases",
        "high blood pressure raises the risk of a stroke",
    ),
    "money": (
        "the bank raised the interest rate by a quarter of a percent",
        "shares fell after the company reported a loss for the year",
        "the tax on profits is due at the end of the quarter",
        "she invests a part of her salary in bonds and funds",
        "the price of oil rose and the currency lost value",
        "inflation is lower, so the budget of households recovers",
        "the loan is paid back in monthly instalments with interest",
        "the auditors checked the accounts and the annual report",
    ),
    "travel": (
        "the night train leaves the station from platform four",
        "our flight was delayed and we missed the connection in Rome",
        "the ferry to the island sails from the old harbour at noon",
        "they booked a hotel near the beach for the summer holiday",
        "take the coastal road, then the pass over the mountains",
        "the passport is checked at the border, the luggage is not",
        "the tourists visited the castle, the museum and the market",
        "a ticket for the tram is sold at the airport and on board",
    ),
}

SENTENCES: tuple[str, ...] = tuple(sentence for sentences in TOPICS.values() for sentence in sentences)
