// Two classes side by side: what was missed, or why this class and not that one.

import { at, bytes, remove, send, watch } from "./api.js";
import { complain, find, make, plural, points, say, show, signed } from "./dom.js";
import { draw, fromNpy, fromPreview } from "./heat.js";

const AGAIN = 1500; // milliseconds until nearest training images are asked for once more

export class Contrast {
  constructor(run, { picture, look, off }) {
    Object.assign(this, { run, picture, look, off, turn: 0, map: null, job: null });
    find("contrast-where").addEventListener("click", () => this.where());
  }

  // The predicted class beside the one that is asked about, or beside the true one if that was missed.
  ask(reading, truth) {
    const turn = ++this.turn;
    const asked = reading.label !== reading.predicted ? reading.label : truth;
    this.forget();
    if (asked === null || asked === reading.predicted || !this.run.prototypes) { show("contrast", false); return; }
    this.missed = asked === truth;
    Object.assign(this, { image: reading.image, label: reading.predicted, versus: asked });
    this.load(turn);
  }

  async load(turn) {
    const { image, label, versus } = this;
    try {
      const found = await send(`/api/images/${image}/contrast`, { label, versus, off: this.off() });
      if (turn !== this.turn) return;
      this.show(found);
      if (found.nearest_state === "preparing") setTimeout(() => { if (turn === this.turn) this.load(turn); }, AGAIN);
    } catch (error) { if (turn === this.turn) complain(error.message); }
  }

  show(found) {
    find("contrast-title").textContent = this.missed ? `What was missed: ${found.class_name} or ${found.versus_name}?` : `${found.class_name} and ${found.versus_name} side by side`;
    find("contrast-sentence").textContent = found.sentence;
    find("contrast-nearest").replaceChildren(...found.nearest.map((near) => this.near(near)));
    find("contrast-rows").replaceChildren(...this.lines(found));
    find("contrast-agree").textContent = found.agreeing.length
      ? `They agree in ${found.agreeing.map((row) => `${row.name} (${points(row.points)} and ${points(row.versus_points)})`).join(", ")}.` : "";
    show("contrast", true);
  }

  near(near) {
    const role = near.label === this.label ? "predicted" : this.missed ? "the truth" : "asked about";
    const image = make("img", { src: at(`/api/training/${near.index}/picture?run=${this.run.key}`), alt: `Training image ${near.name} of ${near.class_name}`, loading: "lazy" });
    return make("figure", {}, image, make("figcaption", {},
      make("strong", { text: near.class_name }), make("span", { class: "muted", text: ` ${role}; its nearest training image, ${near.name}` })));
  }

  lines(found) {
    const line = (name, ...cells) => make("tr", {}, make("th", { scope: "row", text: name }), ...cells);
    const cell = (text, kind = "") => make("td", { class: kind, text });
    const head = make("tr", {}, ...["Part or prototype", found.class_name, found.versus_name, "Difference"].map((text) => make("th", { scope: "col", text })));
    const rows = found.differing.map((row) => line(row.name, cell(points(row.points)), cell(points(row.versus_points)),
      cell(signed(row.difference), row.difference < 0 ? "against" : "for")));
    if (found.others) rows.push(line(`${plural(found.others, "more row")}, none larger`, make("td", { colspan: 3, text: `${signed(found.others_for)} for, ${signed(found.others_against)} against` })));
    return [head, ...rows, line("Score", cell(points(found.score)), cell(points(found.versus_score)), cell(signed(found.score - found.versus_score)))];
  }

  forget() {
    if (this.job) remove(`/api/jobs/${this.job}`).catch(() => {});
    Object.assign(this, { map: null, job: null });
    show("contrast-map", false);
    find("contrast-where").disabled = false;
  }

  // Where the two classes are told apart, as the sheets of `explain --versus` show it.
  async where() {
    const { turn, image, label, versus } = this;
    find("contrast-where").disabled = true;
    try {
      const { job } = await send(`/api/images/${image}/maps`, { label, versus, method: "contrast" });
      this.job = job;
      const end = await watch(job, (news) => { if (turn === this.turn && news.maps.image) this.keep(fromPreview(news.maps.image)); });
      if (turn !== this.turn) return;
      this.job = null;
      if (end.state !== "done") throw new Error(end.message);
      this.keep(fromNpy(await bytes(`/api/images/${image}/maps/${label}/contrast?versus=${versus}`)));
      say("The map of the difference is ready");
    } catch (error) {
      if (turn !== this.turn) return;
      this.forget();
      complain(error.message);
    }
  }

  keep(map) { this.map = map; show("contrast-map", true); this.draw(); }

  draw() { const own = this.picture(); if (own && this.map) draw(find("contrast-map"), own, this.map, this.look()); }
}
