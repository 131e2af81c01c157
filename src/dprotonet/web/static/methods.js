// The class as a whole, by several methods side by side.

import { at, bytes, remove, send, watch } from "./api.js";
import { complain, find, make, say, show } from "./dom.js";
import { draw, fromNpy, fromPreview } from "./heat.js";
import { addMeanings, described } from "./tips.js";

export class Methods {
  constructor(run, { picture, look }) {
    Object.assign(this, { picture, look, known: run.explainers });
    this.cards = new Map(); // method to what is shown of it
    this.chips = new Map(run.methods.map((method) => [method, this.chip(method)]));
    find("methods").replaceChildren(...this.chips.values());
  }

  chip(method) {
    const { label, cost } = this.known[method];
    addMeanings({ [`cost-${method}`]: `Cost: ${cost}.` });
    const button = make("button", { type: "button", class: "chip", "aria-pressed": "false", text: label, "data-meaning": `cost-${method}`, on: { click: () => this.toggle(method) } });
    return described(button, `cost-${method}`);
  }

  // Another image or class: what was chosen is made anew only when asked for.
  ask(image, label, className) {
    const same = this.image === image && this.label === label;
    Object.assign(this, { image, label, className });
    show("methods-card", true);
    if (!same) for (const method of [...this.cards.keys()]) this.close(method);
  }

  toggle(method) { if (this.cards.has(method)) this.close(method); else this.open(method); }

  close(method) {
    const card = this.cards.get(method);
    if (card.job) remove(`/api/jobs/${card.job}`).catch(() => {});
    card.closed = true;
    card.element.remove();
    this.cards.delete(method);
    this.chips.get(method).setAttribute("aria-pressed", "false");
  }

  async open(method) {
    const card = this.card(method);
    try {
      const { job } = await send(`/api/images/${this.image}/maps`, { label: this.label, method });
      card.job = job;
      const end = await watch(job, (news) => this.hear(card, news));
      card.job = null;
      if (card.closed) return;
      if (end.state !== "done") throw new Error(end.message);
      card.map = fromNpy(await bytes(card.path));
      card.finish();
      this.drawOne(card);
    } catch (error) {
      if (card.closed) return;
      this.close(method);
      complain(error.message);
    }
  }

  card(method) {
    const { label } = this.known[method];
    const canvas = make("canvas", { class: "tile-canvas", role: "img", "aria-label": `${this.className} by ${label}` });
    const progress = make("progress", { "aria-label": label });
    const path = `/api/images/${this.image}/maps/${this.label}/${encodeURIComponent(method)}`;
    const link = make("a", { href: at(path), download: `${this.className}-${method}.npy`, text: "raw map (.npy)", hidden: true });
    const element = make("figure", {}, canvas, make("figcaption", {}, make("span", { text: label }), progress, link));
    const finish = () => { progress.remove(); link.hidden = false; say(`${label} is ready`); };
    const card = { canvas, progress, element, path, finish, map: null, job: null, closed: false };
    find("maps").append(element);
    this.cards.set(method, card);
    this.chips.get(method).setAttribute("aria-pressed", "true");
    this.drawOne(card);
    return card;
  }

  hear(card, news) {
    if (news.total) { card.progress.max = news.total; card.progress.value = news.done; }
    if (news.maps.image) { card.map = fromPreview(news.maps.image); this.drawOne(card); }
  }

  drawOne(card) { const own = this.picture(); if (own) draw(card.canvas, own, card.map, this.look()); }

  draw() { for (const card of this.cards.values()) this.drawOne(card); }
}
