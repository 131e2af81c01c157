// Two runs on one image: both answers, maps of the same explainer, the strongest evidence, and what differs.

import { MODEL, at, bytes, read, remove, send, watch } from "./api.js";
import { truthTag } from "./answer.js";
import { complain, find, make, percent, redrawn, say, show, signed } from "./dom.js";
import { draw, fromNpy, fromPreview, overlap } from "./heat.js";
import { term } from "./tips.js";

const LISTED = 3;

export class Beside {
  constructor(run, { picture, look, off }) {
    Object.assign(this, { runs: [], picture, look, off, method: "", turn: 0, columns: [] });
    this.ready = this.start(run);
  }

  // The other run, and the explainers that both have.
  async start(run) {
    if (run.runs.length < 2) return;
    const other = await read("/api/run", 1 - MODEL);
    this.runs = [run, other].sort((one, two) => one.model - two.model);
    find("beside-title").textContent = `${this.runs[0].name} and ${this.runs[1].name} side by side`;
    const common = run.methods.filter((method) => other.methods.includes(method));
    const chooser = find("beside-method");
    chooser.append(make("option", { value: "", text: "no map" }), ...common.map((method) => make("option", { value: method, text: run.explainers[method].label })));
    chooser.addEventListener("change", () => { this.method = chooser.value; this.findMaps(); });
  }

  // What both say of the class that is asked about; a run that does not know it is asked for its own answer.
  async ask(reading) {
    await this.ready;
    if (!this.runs.length) return;
    this.stop();
    const turn = ++this.turn;
    const asked = reading.label === reading.predicted ? null : reading.class_name;
    try {
      const readings = await Promise.all(this.runs.map((run) => {
        const label = run.classes.indexOf(asked);
        return send(`/api/images/${reading.image}/evidence`, { label: label < 0 ? null : label, top: LISTED, off: run.model === MODEL ? this.off() : [] }, run.model);
      }));
      if (turn !== this.turn) return;
      this.show(readings);
    } catch (error) { if (turn === this.turn) complain(error.message); }
  }

  show(readings) {
    this.columns = readings.map((reading, number) => this.column(this.runs[number], reading));
    show("beside", true);
    redrawn(find("beside-columns"), () => find("beside-columns").replaceChildren(...this.columns.map((column) => column.element)));
    find("beside-words").textContent = differing(this.runs, readings);
    this.findMaps();
  }

  column(run, reading) {
    const meaning = reading.calibrated ? "calibrated" : "probability";
    const share = (one) => term(meaning, percent(one.probability), "share");
    const first = reading.probabilities[0];
    const canvas = make("canvas", { class: "tile-canvas", role: "img", "aria-label": `The image as ${run.name} sees it` });
    const progress = make("progress", { "aria-label": `Map of ${run.name}`, hidden: true });
    const element = make("section", { class: "beside-run", "aria-label": run.name },
      make("h3", { text: run.name }),
      reading.warning ? make("p", { class: "notice", text: reading.warning }) : null,
      make("p", { class: reading.warning ? "headline doubtful" : "headline" }, make("strong", { text: first.class_name }), share(first), truthTag(reading, first)),
      make("figure", {}, canvas, progress),
      make("p", { class: "muted", text: `Asked for: ${reading.class_name}` }),
      make("ol", { class: "beside-list", "aria-label": "Likeliest classes" }, ...reading.probabilities.slice(0, LISTED).map((one) => make("li", {}, make("span", { text: one.class_name }), share(one)))),
      run.prototypes ? make("p", { class: "muted", text: "Strongest evidence" }) : make("p", { class: "muted", text: run.plain ? "A plain network gives no evidence." : "A black box gives no evidence." }),
      make("ol", { class: "beside-list", "aria-label": "Strongest evidence" }, ...reading.rows.map((row) => this.row(run, row))),
      run.model === MODEL ? make("p", { class: "muted", text: "All of its evidence is below." }) : make("a", { href: `/?model=${run.model}&image=${reading.image}#explain`, text: `Everything about ${run.name}` }));
    return { run, reading, element, canvas, progress, map: null, job: null };
  }

  row(run, row) {
    return make("li", {},
      run.sources ? make("img", { src: at(`/api/prototypes/${row.prototype}/place?run=${run.key}`, run.model), alt: `Training image ${row.source}`, width: 44, height: 44, loading: "lazy" }) : null,
      term("prototype", `prototype ${row.prototype}${row.part && `, ${row.part}`}`, "muted grow"), term("points", signed(row.points), "share"));
  }

  // ── maps of both by the same explainer ──

  async findMaps() {
    this.stop();
    const turn = ++this.turn;
    show("beside-overlap", false);
    for (const column of this.columns) { column.map = null; column.progress.hidden = !this.method; column.progress.removeAttribute("value"); }
    this.draw();
    if (!this.method) return;
    try {
      await Promise.all(this.columns.map((column) => this.findMap(column, () => turn === this.turn)));
      if (turn === this.turn) this.compare();
    } catch (error) { if (turn === this.turn) complain(error.message); }
  }

  async findMap(column, current) {
    const { run, reading } = column;
    const base = `/api/images/${reading.image}/maps`;
    const { job } = await send(base, { label: reading.label, method: this.method }, run.model);
    if (!current()) { remove(`/api/jobs/${job}`, run.model).catch(() => {}); return; }
    column.job = job;
    const end = await watch(job, (news) => this.hear(column, news, current), run.model);
    column.job = null;
    column.progress.hidden = true;
    if (!current()) return;
    if (end.state !== "done") throw new Error(`${run.name}: ${end.message}`);
    column.map = fromNpy(await bytes(`${base}/${reading.label}/${this.method}`, run.model));
    if (current()) this.draw();
  }

  hear(column, news, current) {
    if (!current()) return;
    if (news.total) { column.progress.max = news.total; column.progress.value = news.done; }
    if (news.maps.image) { column.map = fromPreview(news.maps.image); this.draw(); }
  }

  stop() {
    for (const { job, run } of this.columns) if (job) remove(`/api/jobs/${job}`, run.model).catch(() => {});
  }

  compare() {
    const share = overlap(...this.columns.map((column) => column.map));
    const [one, other] = this.columns.map((column) => column.reading.class_name);
    const asked = one === other ? `for ${one}` : `for ${one} and for ${other}`;
    find("beside-overlap").replaceChildren(term("overlap", `The hottest fifths of both maps ${asked} overlap by ${percent(share)}`), ".");
    show("beside-overlap", true);
    say("Both maps are ready");
  }

  draw() {
    const own = this.picture();
    if (own) for (const { canvas, map } of this.columns) draw(canvas, own, map, this.look());
  }
}

// What differs, in a sentence or two.
function differing(runs, readings) {
  const said = readings.map((reading) => reading.probabilities[0]);
  const names = runs.map((run) => run.name);
  const [one, other] = said;
  if (one.class_name === other.class_name) {
    const gap = 100 * Math.abs(one.probability - other.probability);
    const surer = names[one.probability >= other.probability ? 0 : 1];
    return gap < 0.05 ? `Both see ${one.class_name}, equally sure of it.` : `Both see ${one.class_name}; ${surer} is surer of it, by ${gap.toFixed(1)} points of per cent.`;
  }
  const views = [0, 1].map((number) => {
    const theirs = readings[1 - number].probabilities.find((item) => item.class_name === said[number].class_name);
    const given = theirs ? `gives it ${percent(theirs.probability)}` : "does not know that class";
    return `${names[number]} sees ${said[number].class_name} (${percent(said[number].probability)}), ${names[1 - number]} ${given}`;
  });
  return `They disagree. ${views.join("; ")}.`;
}
