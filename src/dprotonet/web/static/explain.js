// The view of one image: it comes in, is answered, and questions about it are asked.

import { at, remove, send } from "./api.js";
import { showAnswer, showQuestion } from "./answer.js";
import { Beside } from "./beside.js";
import { Contrast } from "./contrast.js";
import { complain, find, say, show } from "./dom.js";
import { Downloads } from "./downloads.js";
import { Evidence } from "./evidence.js";
import { draw, picture } from "./heat.js";
import { Methods } from "./methods.js";
import { Places } from "./places.js";
import { Sets } from "./sets.js";

const MOST_ROWS = 10;

export const look = () => ({ share: Number(find("share").value) / 100, opacity: Number(find("opacity").value) / 100, box: find("box").checked });

export class Explain {
  constructor(run, whatif) {
    Object.assign(this, { run, whatif, image: "", picture: null, plain: null, reading: null, label: null, top: 3 });
    this.turn = 0; // of questions about the image
    this.looking = 0; // of images
    this.saidAt = 0;
    this.sources = new Map(); // prototype to its picture; null while it is on its way
    this.places = new Places(() => this.evidence.draw());
    this.evidence = new Evidence({
      picture: () => this.picture, source: (prototype) => this.source(prototype), look,
      map: (where, prototype) => this.places.map(this.image, where, prototype),
      mark: (prototype) => this.places.mark(this.image, prototype),
      toggle: (prototype) => whatif.toggle(prototype), isOff: () => whatif.off.size,
    });
    this.beside = new Beside(run, { picture: () => this.picture, look, off: () => whatif.list() });
    this.sets = new Sets(run);
    this.methods = new Methods(run, { picture: () => this.picture, look });
    this.contrast = new Contrast(run, { picture: () => this.picture, look, off: () => whatif.list() });
    this.downloads = new Downloads(run, { lacking: (reading) => this.lacking(reading), off: () => whatif.list() });
    for (const id of ["share", "opacity", "box"]) find(id).addEventListener("input", () => this.redraw());
    find("cancel").addEventListener("click", async () => { if (this.places.job) await remove(`/api/jobs/${this.places.job}`).catch(() => {}); });
    find("again").addEventListener("click", () => this.findPlaces(this.reading));
    find("more-rows").addEventListener("click", () => { this.top = Math.min(MOST_ROWS, this.top + 3); this.ask(); });
    this.redraw();
  }

  source(prototype) {
    const found = this.sources.get(prototype);
    if (found === undefined && this.run.sources) {
      this.sources.set(prototype, null);
      picture(at(`/api/prototypes/${prototype}/picture?run=${this.run.key}`)).then(
        (image) => { this.sources.set(prototype, image); this.evidence.draw(); }, (error) => complain(error.message));
    }
    return found;
  }

  redraw() {
    for (const id of ["share", "opacity"]) find(`${id}-said`).textContent = `${find(id).value} %`;
    this.evidence.draw();
    this.methods.draw();
    this.beside.draw();
    this.contrast.draw();
  }

  // ── an image comes in ──

  async lookAt(request, words) {
    const turn = ++this.looking;
    this.turn += 1; // answers to questions about the image before are late
    complain("");
    find("choose-words").textContent = words;
    say(words);
    find("drop").classList.add("busy");
    await this.places.cancel();
    this.working(null);
    try {
      const reading = await request();
      const shown = await picture(at(`/api/images/${reading.image}/picture`));
      if (turn !== this.looking) return;
      Object.assign(this, { image: reading.image, picture: shown, plain: reading, label: null, top: 3 });
      document.body.classList.add("with-image");
      show("shown", true);
      draw(find("shown"), shown, null, look());
      if (find("drop").getBoundingClientRect().top < 0) find("drop").scrollIntoView();
      if (this.whatif.off.size) await this.ask(); else this.present(reading);
    } catch (error) {
      if (turn === this.looking) complain(error.message);
    } finally {
      if (turn === this.looking) {
        find("choose-words").textContent = this.image ? "Drop another image here" : "Drop an image here";
        find("drop").classList.remove("busy");
      }
    }
  }

  // ── the answer, and questions about it ──

  async ask() {
    const turn = ++this.turn;
    if (!this.image) return;
    try {
      const reading = await send(`/api/images/${this.image}/evidence`, { label: this.label, off: this.whatif.list(), top: this.top });
      if (turn === this.turn) this.present(reading);
    } catch (error) { if (turn === this.turn) complain(error.message); }
  }

  choose(label) { this.label = label; this.ask(); }

  present(reading) {
    const { run, whatif } = this;
    this.reading = reading;
    showAnswer(run, reading, { label: reading.label, choose: (label) => this.choose(label) });
    showQuestion(run, reading);
    this.sets.show(reading);
    show("evidence", run.prototypes > 0);
    if (run.prototypes) this.evidence.show(reading);
    show("more-rows", reading.rows.length < Math.min(MOST_ROWS, run.prototypes) && reading.others > 0);
    this.methods.ask(reading.image, reading.label, reading.class_name);
    this.contrast.ask(reading, reading.truth);
    if (whatif.off.size) whatif.tell(this.plain, reading);
    this.downloads.show(reading);
    this.beside.ask(reading);
    if (run.sources) this.findPlaces(reading);
  }

  // ── heatmaps ──

  lacking(reading) { return this.places.lacking(reading.image, reading.rows.map((row) => row.prototype)); }

  async findPlaces(reading) {
    show("again", false);
    if (!this.lacking(reading).length) { await this.places.cancel(); this.working(null); this.downloads.show(reading); return; }
    this.working({ done: 0, total: 0 });
    try {
      const end = await this.places.find(reading.image, reading.rows.map((row) => row.prototype), (news) => this.working(news));
      if (reading !== this.reading) return;
      this.working(null);
      show("again", end === "cancelled");
      say(end === "done" ? "The heatmaps are finished" : "Cancelled");
      this.downloads.show(reading);
    } catch (error) {
      if (reading !== this.reading) return;
      this.working(null);
      show("again", true);
      complain(error.message);
    }
  }

  working(news) {
    show("working", news !== null);
    const bar = find("progress");
    if (!news || !news.total) { bar.removeAttribute("value"); this.saidAt = 0; return; }
    bar.max = news.total;
    bar.value = news.done;
    const quarter = Math.floor((4 * news.done) / news.total);
    if (quarter > this.saidAt && quarter < 4) { this.saidAt = quarter; say(`Heatmaps ${25 * quarter} % finished`); }
  }
}
