// The prediction set: classes that the true one is among, as often as was promised, and what was measured of it.

import { find, make, percent, plural, redrawn, show } from "./dom.js";
import { term } from "./tips.js";

const NAMED = 6; // classes of a set that are named
const USUAL = 0.9;

export class Sets {
  constructor(run) { Object.assign(this, { run, coverage: USUAL }); }

  show(reading) {
    const known = this.run.calibration;
    show("sets", true);
    redrawn(find("sets"), () => find("sets").replaceChildren(...(known === null
      ? [note(`${this.run.plain ? "This network" : "This run"} is not calibrated: nobody has measured how often such an answer is right.${this.run.plain ? "" : " dprotonet calibrate RUN does."}`)]
      : reading.sets.length && reading.familiar !== false ? this.set(reading) : [note(this.lack(reading))])));
  }

  set(reading) {
    const chosen = reading.sets.find((one) => one.coverage === this.coverage) ?? reading.sets[0];
    const chooser = make("select", { "aria-label": "Coverage of the set" }, ...reading.sets.map((one) =>
      make("option", { value: one.coverage, text: whole(one.coverage), selected: one === chosen })));
    chooser.addEventListener("change", () => { this.coverage = Number(chooser.value); this.show(reading); });
    const measured = this.run.calibration.sets.find((one) => one.coverage === chosen.coverage);
    return [
      make("p", { class: "set" }, "With ", chooser, " ", term("set", "coverage"), ": ", make("strong", { text: either(chosen.class_names) })),
      note(`${this.fitted()} ${said(measured)}`),
    ];
  }

  lack(reading) {
    if (reading.familiar === false) return `${this.fitted()} This image is unlike those: no probability and no set of classes can be relied on.`;
    if (this.run.calibration.sets.length) return `${this.fitted()} With prototypes switched off no set of classes is promised.`;
    return `${this.fitted()} For sets of classes it has to be calibrated anew: dprotonet calibrate RUN.`;
  }

  fitted() { return `Calibrated on ${this.run.calibration.images} ${this.run.calibration.source}.`; }
}

const note = (text) => make("p", { class: "muted", text });
const whole = (share) => percent(share).replace(".0", "");

function either(names) {
  if (names.length === 1) return names[0];
  if (names.length > NAMED) return `${names.slice(0, NAMED).join(", ")} or ${plural(names.length - NAMED, "more class", "more classes")}`;
  return `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
}

function said(measured) {
  if (measured.covered === null) return "Not yet measured on test images: dprotonet evaluate RUN does.";
  return `Measured on ${plural(measured.images, "test image")}: the true class is in ${percent(measured.covered)} of such sets, which have ${measured.mean_size.toFixed(2)} classes on average.`;
}
