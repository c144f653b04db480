"""The demo's model has learned something, and answers alike wherever it runs."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.demo.corpus import SENTENCES
from steelyard.demo.model import TopicModel

NEW = {  # none of these is in the corpus; the first two of each topic were used to choose RIDGE and the weights
    "weather": [
        "it rains and a cold wind blows tonight",
        "snow and storm in the morning",
        "it will rain tomorrow",
        "rain and a fresh wind from the sea",
        "rain and wind tonight",
        "snow fell all night",
        "the sun shines and the sky is clear",
    ],
    "food": [
        "bake the bread and fry the fish in butter",
        "a cake with cheese and honey",
        "a spoon of salt in the soup",
        "fry the potatoes with garlic",
        "we eat bread and cheese",
        "bake the fish with lemon",
        "the sauce needs pepper",
    ],
    "sport": [
        "the team won the final match",
        "the players lost the game in the last minute",
        "she won the match",
        "the team lost the cup final",
        "a penalty in the last minute",
        "the cyclist won the race",
        "training for the season",
    ],
    "music": [
        "he plays the violin in an orchestra",
        "a new song for guitar and piano",
        "the band plays a slow song",
        "a concert for violin and orchestra",
        "she sings in a choir",
        "drums and bass",
        "the opera by a young composer",
    ],
    "computing": [
        "the program crashed with a memory error",
        "requests to the server time out",
        "the server is out of memory",
        "run the test and read the log",
        "the query of the database is slow",
        "an error in the program",
        "requests to the model",
    ],
    "medicine": [
        "the patient has a fever and pain in the throat",
        "the nurse gave him tablets",
        "the doctor treats the infection",
        "two tablets against pain",
        "the patient has a broken wrist",
        "a scan of the lungs",
        "children need vaccines",
    ],
    "money": [
        "the bank reports a loss and shares fall",
        "interest on the loan and taxes",
        "the bank pays interest",
        "the company made a profit this year",
        "inflation and the price of oil",
        "she sells her shares",
        "the annual report of the fund",
    ],
    "travel": [
        "the train to the airport is delayed",
        "we booked a hotel on the island",
        "the train leaves from platform two",
        "our flight to Rome",
        "a hotel at the beach",
        "the ferry and the island",
        "tourists at the castle",
    ],
}


@pytest.fixture(scope="module")
def model() -> TopicModel:
    return TopicModel()


def test_it_knows_the_topics_of_most_sentences_it_has_not_seen(model: TopicModel) -> None:
    texts = [text for topic in NEW.values() for text in topic]
    assert not set(texts) & set(SENTENCES)
    told = [model.topics[row.argmax()] for row in model.embed(texts)]
    right = [topic for topic in NEW for _ in NEW[topic]]
    assert sum(a == b for a, b in zip(told, right, strict=True)) >= 0.85 * len(texts)  # by chance it would be an eighth


def test_texts_of_one_topic_are_nearer_to_each_other_than_to_others(model: TopicModel) -> None:
    rows = np.concatenate([model.embed(texts) for texts in NEW.values()])
    topic = np.repeat(range(len(NEW)), [len(texts) for texts in NEW.values()])
    likeness = rows @ rows.T
    same = topic[:, None] == topic[None, :]
    assert likeness[same].mean() > 0.5
    assert abs(likeness[~same].mean()) < 0.1


def test_a_text_gets_the_same_answer_alone_and_in_company(model: TopicModel) -> None:
    texts = ["", "?!", "rain", *SENTENCES[:20]]
    together = model.embed(texts)
    assert together.shape == (len(texts), len(model.topics))
    np.testing.assert_allclose(np.concatenate([model.embed([text]) for text in texts]), together, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)


def test_every_replica_has_the_same_model(model: TopicModel) -> None:
    np.testing.assert_array_equal(TopicModel().embed(SENTENCES[:3]), model.embed(SENTENCES[:3]))
