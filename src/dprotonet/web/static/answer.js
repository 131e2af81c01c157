// The prediction: headline, probabilities, and the question "why this class, why not that one?"

import { find, make, percent, points, redrawn, say, show } from "./dom.js";
import { described, term } from "./tips.js";

const LISTED = 5;

export function showAnswer(run, reading, { label, choose }) {
  show("welcome", false);
  show("prediction", true);
  const predicted = reading.probabilities.find((one) => one.label === reading.predicted);
  redrawn(find("headline"), () => find("headline").replaceChildren(headline(run, predicted, reading)));
  show("unfamiliar", reading.warning !== "");
  find("unfamiliar").replaceChildren(term("distance", reading.warning));
  redrawn(find("classes"), () => find("classes").replaceChildren(
    ...listed(reading, label).map((one) => bar(one, label, choose, meaningOf(reading))), others(run, reading, label, choose)));
  say(`${reading.warning} ${lead(run, reading)} ${predicted.class_name}, ${percent(predicted.probability)}`);
}

const meaningOf = (reading) => (reading.calibrated ? "calibrated" : "probability");

// Of an image unlike the training images the class is no finding, so it is neither said nor printed like one.
const lead = (run, reading) => (reading.warning ? "Of its classes the network would choose"
  : run.task === "multilabel" ? "The likeliest of several labels is" : "The network sees");

function headline(run, predicted, reading) {
  const words = make("p", { class: reading.warning ? "headline doubtful" : "headline" },
    make("span", { class: "muted", text: `${lead(run, reading)} ` }),
    make("strong", { text: predicted.class_name }),
    term(meaningOf(reading), percent(predicted.probability), "share"));
  const tag = truthTag(reading, predicted);
  if (tag) words.append(tag);
  return words;
}

// Whether it is right, of a test image; a network cannot be wrong about a class that it does not know.
export function truthTag({ truth, truth_name: name }, said) {
  if (name === null) return null;
  if (truth === null) return make("span", { class: "tag", text: `it is ${name}, a class that it does not know` });
  const right = name === said.class_name;
  return make("span", { class: right ? "tag good" : "tag bad", text: right ? "✓ correct" : `✗ it is ${name}` });
}

// The likeliest classes, and the one that is asked about.
function listed(reading, label) {
  const first = reading.probabilities.slice(0, LISTED);
  return first.some((one) => one.label === label) ? first : [...first, reading.probabilities.find((one) => one.label === label)];
}

function bar(one, label, choose, meaning) {
  const fill = make("span", { class: "fill" });
  fill.style.width = `${100 * one.probability}%`;
  return described(make("button", { type: "button", class: "class", "aria-pressed": String(one.label === label), on: { click: () => choose(one.label) } },
    make("span", { class: "name", text: one.class_name }),
    make("span", { class: "track", "aria-hidden": "true" }, fill),
    make("span", { class: "share", text: percent(one.probability), "data-meaning": meaning })), meaning);
}

function others(run, reading, label, choose) {
  const shown = new Set(listed(reading, label).map((one) => one.label));
  const rest = run.classes.map((name, number) => [number, name]).filter(([number]) => !shown.has(number));
  if (!rest.length) return "";
  const chooser = make("select", { "aria-label": "Ask about another class" }, make("option", { value: "", text: "Why not another class?" }),
    ...rest.map(([number, name]) => make("option", { value: number, text: name })));
  chooser.addEventListener("change", () => { if (chooser.value !== "") choose(Number(chooser.value)); });
  return chooser;
}

export function showQuestion(run, reading) {
  const asked = reading.class_name;
  const predicted = run.classes[reading.predicted];
  const own = reading.label === reading.predicted;
  find("why").textContent = own ? `Why ${asked}?` : `Why not ${asked}?`;
  find("why-words").textContent = own
    ? `Parts of your image that look like parts of training images. Similarity × weight = points; all points add up to the score of ${asked}.`
    : `All that is said for and against ${asked} adds up to ${points(reading.score)} points; ${predicted} has ${points(reading.predicted_score)}.`;
}
