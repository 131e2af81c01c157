"""What each number that people see means, in a sentence or two: the page's tooltips, the report's glossary.

Longer, with what is good and what a number does not say: docs/reading-the-numbers.md.
"""

from collections.abc import Mapping

MEANINGS: Mapping[str, str] = {
    "prototype": (
        "A region of a training image that the model remembers as typical of a class. A yellow box marks "
        "its place, where it has one. The number is its name in every command and file."
    ),
    "class": "What the model can answer. It has no answer for things of other kinds.",
    "similarity": "How much the most similar region of the image resembles the prototype; 0 is not at all.",
    "weight": (
        "How much a resemblance to this prototype counts for the class; a negative weight speaks against it."
    ),
    "points": "Similarity × weight. All points together are the score of the class.",
    "rest": (
        "The points of all prototypes without a row of their own, summed: those that speak for the class, "
        "and those that speak against it."
    ),
    "score": "All points of all prototypes, summed. The class with the highest score is the answer.",
    "lead": (
        "How many points this part is ahead of the same part's prototype of the likeliest other class. A "
        "part that both classes share has many points and no lead, so it decides nothing."
    ),
    "probability": (
        "How clearly this class wins against the others of this run: the softmax of the scores. It is no "
        "promise that the answer is right; nobody has compared it with how often answers are."
    ),
    "calibrated": (
        "How likely the class is, fitted to images that the network had not learned from: of answers with "
        "80 %, about 80 % are right on images like those. On images of another kind it may mean nothing."
    ),
    "distance": (
        "How far the image is from everything the run knows; 1 is the limit. Beyond it a warning is "
        "given, as for about one known image in twenty."
    ),
    "steady": (
        "Does the place stay where it is when noise is added to the image? ●●● steady: in all of eight noisy "
        "copies; ●●○ moves: in at least half; ●○○ unsteady: in fewer. Steady does not mean right."
    ),
    "differ": (
        "Many other places of the training image look more like this place than the one that is shown. About "
        "one row in twenty of rightly answered images gets this warning. Doubt the row."
    ),
    "set": (
        "A prediction set: on images like the training images the true class is in it at least as often as "
        "the coverage says, on average over images. More coverage takes more classes. Nothing is promised "
        "for images unlike them, nor for each class."
    ),
    "purity": (
        "Of the training images most similar to a prototype (ten, or as many as its class has), the share "
        "that is of its own class. Low purity means: it looks like other classes too."
    ),
    "decides": "In how many training images this prototype gave the most points to the answer.",
    "duplicates": "Prototypes of the same class that coincide: they say the same thing twice.",
    "near": "How similar this training image is to the prototype; the most similar images come first.",
    "accuracy": "The share of test images that get the right class. The change is in points of per cent.",
    "hottest": (
        "How much of the heatmap is shown: the pixels that matter most, as a share of all pixels. The "
        "dashed box is round them."
    ),
    "opacity": "How strongly the heatmap covers the image.",
    "heat": (
        "The colours of heatmaps, from pixels that can be hidden without loss to pixels that keep the "
        "resemblance alive. It does not prove why the model learned it."
    ),
    "wrong": (
        "The probability of the class that the model said, although the image is of another one: the "
        "higher, the surer it was of its mistake."
    ),
    "uncertain": "The probability of the likeliest class: the lower, the less the model could decide.",
    "overlap": (
        "Of the hottest fifth of both maps, the share of pixels that they have in common (intersection "
        "over union): 100 % is the same place, and two maps without any relation have about 11 %."
    ),
}
