// The test images worth a look: the most wrong, the least certain, the strangest. A click explains one.

import { at, read } from "./api.js";
import { complain, find, make, percent, plural, points, redrawn, show } from "./dom.js";
import { described, term } from "./tips.js";

export class Gallery {
  constructor(run, pick) { Object.assign(this, { run, pick, drawn: false }); }

  async open() {
    if (this.drawn) return;
    try {
      const found = await read("/api/gallery");
      this.tell(found);
      if (found.state === "ready") this.show(found);
      else if (found.state === "preparing" && location.hash === "#gallery") setTimeout(() => this.open(), 1000);
    } catch (error) { complain(error.message); }
  }

  tell({ state, done, total, message }) {
    const bar = find("gallery-progress");
    show("gallery-working", state !== "ready");
    bar.hidden = state === "failed";
    if (total) { bar.max = total; bar.value = done; }
    find("gallery-said").textContent = state === "failed" ? `There is no gallery: ${message}` : `Going over the test images once${total ? `, ${done} of ${total}` : ""}.`;
  }

  show(found) {
    this.drawn = true;
    const share = found.calibrated ? "calibrated" : "probability";
    const sections = [
      ["The most wrong", "wrong", term("wrong", `${found.mistakes} of ${plural(found.images, "test image")} are wrong`), ", the surest mistakes first.", share],
      ["The least certain", "uncertain", term("uncertain", "The least probable answers"), " first, right or wrong.", share],
      ["The strangest", "strange", ...strangers(found), "distance"],
    ];
    redrawn(find("gallery"), () => find("gallery").replaceChildren(...sections.map(([title, kind, counted, words, meaning]) => {
      const tiles = found[kind].map((item) => this.tile(item, kind, meaning));
      return make("section", { "aria-labelledby": `gallery-${kind}` },
        make("h3", { id: `gallery-${kind}`, text: title }), make("p", { class: "muted" }, counted, words),
        make("ul", { class: "browse" }, ...tiles));
    })));
  }

  tile(item, kind, meaning) {
    const [said, truth] = [item.predicted, item.label].map((label) => this.run.classes[label]);
    const right = item.predicted === item.label;
    const number = kind === "strange" ? `${points(item.distance)} × the limit` : percent(item.probability);
    const name = `Test image ${item.index} of ${truth}, ${right ? "rightly seen" : `taken for ${said}`}, ${number}`;
    return make("li", {}, described(make("button", { type: "button", class: "proto", "aria-label": name, on: { click: () => this.look(item) } },
      make("img", { src: at(`/api/samples/${item.index}/picture?run=${this.run.key}`), alt: "", loading: "lazy", width: 160, height: 160 }),
      make("strong", { text: said }),
      make("span", { class: kind === "strange" && item.distance > 1 ? "stranger" : "muted", text: number, "data-meaning": meaning }),
      make("span", { class: right ? "tag good" : "tag bad", text: right ? "✓ correct" : `✗ it is ${truth}` })), meaning));
  }

  look(item) {
    location.hash = "#explain";
    find("main").focus();
    window.scrollTo(0, 0);
    this.pick(item.index);
  }
}

function strangers(found) {
  if (found.strangers === null) return [make("span", { text: "This run cannot tell which images are strange to it" }), ": dprotonet familiarity RUN measures it."];
  return [term("distance", `${found.strangers} of ${plural(found.images, "test image")} ${found.strangers === 1 ? "is" : "are"} beyond the limit`), " of what is like the training images, the farthest first."];
}
