// What if these prototypes did not count? Their effect on the answer and on the test data, and a cleaned run.

import { send } from "./api.js";
import { closely, find, make, percent, plural, redrawn, show } from "./dom.js";
import { Saving, keepRoom } from "./saving.js";
import { term } from "./tips.js";

export const REASONS = { background: "background", artefact: "an artefact", duplicate: "a duplicate", other: "another reason" };

export class WhatIf {
  constructor(run, changed) {
    this.run = run;
    this.changed = changed;
    this.off = new Map(); // prototype to the reason
    this.turn = 0;
    this.image = "";
    this.meaning = "probability";
    this.test = "";
    find("whatif-clear").addEventListener("click", () => { this.off.clear(); this.update(); });
    this.saving = new Saving(() => { find("whatif-save").disabled = this.saving.busy; });
    find("whatif-save").addEventListener("click", () => this.saving.begin(Object.fromEntries(this.off)));
    keepRoom();
  }

  has(prototype) { return this.off.has(prototype); }

  list() { return [...this.off.keys()]; }

  toggle(prototype, reason = "other") {
    if (this.off.has(prototype) && this.off.get(prototype) === reason) this.off.delete(prototype);
    else this.off.set(prototype, reason);
    this.update();
  }

  update() {
    show("whatif", this.off.size > 0);
    this.changed();
    if (this.off.size) this.measure();
  }

  // What the answer for the image was and is.
  tell(before, after) {
    this.image = before && after ? sentence(before, after) : "";
    this.meaning = after?.calibrated ? "calibrated" : "probability";
    this.say();
  }

  async measure() {
    const turn = ++this.turn;
    try {
      const found = await send("/api/what-if", { off: this.list() });
      if (turn !== this.turn) return;
      this.test = tested(found);
      this.say();
      if (found.state === "preparing") setTimeout(() => { if (turn === this.turn) this.measure(); }, 1000);
    } catch (error) {
      if (turn === this.turn) { this.test = error.message; this.say(); }
    }
  }

  say() {
    const marks = this.list().slice(0, 12).map((number) => make("button", { type: "button", class: "chip", text: `#${number} ×`, "aria-label": `Switch prototype ${number} on again`, on: { click: () => { this.off.delete(number); this.update(); } } }));
    redrawn(find("whatif-words"), () => find("whatif-words").replaceChildren(
      make("p", {}, make("strong", { text: `What if: ${plural(this.off.size, "prototype")} off ` }), ...marks),
      make("p", { id: "whatif-image" }, this.image ? term(this.meaning, this.image) : ""),
      make("p", { id: "whatif-test" }, this.test ? term("accuracy", this.test) : "")));
  }
}

function sentence(before, after) {
  const [was, is] = [before, after].map((reading) => reading.probabilities[0]);
  if (was.label === is.label) return `This image: still ${is.class_name}, ${closely(was.probability)} → ${closely(is.probability)}`;
  return `This image: ${was.class_name} (${closely(was.probability)}) → ${is.class_name} (${closely(is.probability)})`;
}

function tested(found) {
  if (found.state === "preparing") return `Test accuracy: going over the test images once, ${found.total ? `${found.done} of ${found.total}` : "…"}`;
  if (found.state === "failed") return `Test accuracy cannot be told: ${found.message}`;
  const change = found.accuracy - found.before;
  const points = `${change >= 0 ? "+" : "−"}${Math.abs(100 * change).toFixed(1)} points`;
  return `Test accuracy on ${plural(found.images, "image")}: ${percent(found.before)} → ${percent(found.accuracy)} (${points})`;
}
