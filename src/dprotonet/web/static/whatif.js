// What if these prototypes did not count? Their effect on the answer and on the test data, and a cleaned run.

import { send, watch } from "./api.js";
import { closely, complain, find, make, percent, plural, redrawn, say, show } from "./dom.js";

export const REASONS = { background: "background", artefact: "an artefact", duplicate: "a duplicate", other: "another reason" };

export class WhatIf {
  constructor(run, changed) {
    this.run = run;
    this.changed = changed;
    this.off = new Map(); // prototype to the reason
    this.turn = 0;
    this.image = "";
    this.test = "";
    find("whatif-clear").addEventListener("click", () => { this.off.clear(); this.update(); });
    find("whatif-save").addEventListener("click", () => this.save());
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
    document.body.classList.toggle("with-whatif", this.off.size > 0);
    find("whatif-save").disabled = false;
    this.changed();
    if (this.off.size) this.measure();
  }

  // What the answer for the image was and is.
  tell(before, after) {
    this.image = before && after ? sentence(before, after) : "";
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
      make("p", { id: "whatif-image", text: this.image }),
      make("p", { id: "whatif-test", text: this.test })));
  }

  async save() {
    const button = find("whatif-save");
    button.disabled = true;
    try {
      const { job } = await send("/api/cleaned", { reasons: Object.fromEntries(this.off) });
      const end = await watch(job, (news) => { this.test = `Saving: the last layer learns anew. ${news.total ? `${news.done} of ${news.total}` : ""}`; this.say(); });
      if (end.state !== "done") throw new Error(end.message);
      this.test = end.result.words;
      this.say();
      say(end.result.words);
    } catch (error) {
      complain(error.message);
      button.disabled = false;
      this.measure();
    }
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
