// Where things are seen: maps by image and prototype, previews first, the real ones at the end.

import { bytes, read, remove, send, watch } from "./api.js";
import { fromNpy, fromPreview } from "./heat.js";

export class Places {
  constructor(changed) {
    this.maps = new Map(); // "IMAGE/WHERE/PROTOTYPE" to a field
    this.finished = new Set(); // "IMAGE/PROTOTYPE"
    this.marks = new Map(); // the same to what the row is worth
    this.changed = changed;
    this.job = null;
    this.turn = 0;
  }

  map(image, where, prototype) { return this.maps.get(`${image}/${where}/${prototype}`); }

  mark(image, prototype) { return this.marks.get(`${image}/${prototype}`); }

  lacking(image, prototypes) { return prototypes.filter((number) => !this.finished.has(`${image}/${number}`)); }

  // Find the places of these prototypes; tells `progress` how far it is. Gives the state in the end.
  async find(image, prototypes, progress) {
    await this.cancel();
    const wanted = this.lacking(image, prototypes);
    if (!wanted.length) return "done";
    const turn = ++this.turn;
    const { job } = await send(`/api/images/${image}/places`, { prototypes: wanted });
    if (turn !== this.turn) { remove(`/api/jobs/${job}`).catch(() => {}); return "cancelled"; }
    this.job = job;
    const end = await watch(job, (news) => {
      if (turn !== this.turn) return;
      this.preview(image, news.maps);
      progress(news);
    });
    if (turn !== this.turn) return "cancelled";
    this.job = null;
    if (end.state === "failed") throw new Error(end.message);
    if (end.state === "done") await this.fetch(image, wanted);
    return end.state;
  }

  async cancel() {
    this.turn += 1;
    const { job } = this;
    this.job = null;
    if (job) await remove(`/api/jobs/${job}`).catch(() => {});
  }

  preview(image, maps) {
    const entries = Object.entries(maps);
    if (this.maps.size > 400) this.forget(image);
    for (const [name, map] of entries) this.maps.set(`${image}/${name}`, fromPreview(map));
    if (entries.length) this.changed();
  }

  async fetch(image, prototypes) {
    const both = prototypes.flatMap((number) => ["image", "source"].map((where) => [number, where]));
    await Promise.all(both.map(async ([number, where]) => {
      const path = `/api/images/${image}/places/${number}/${where}`;
      this.maps.set(`${image}/${where}/${number}`, fromNpy(await bytes(path)));
    }));
    await Promise.all(prototypes.map(async (number) => {
      this.marks.set(`${image}/${number}`, (await read(`/api/images/${image}/places/${number}`)).mark);
      this.finished.add(`${image}/${number}`);
    }));
    this.changed();
  }

  // Maps of images that were looked at before: they can be had again.
  forget(image) {
    for (const key of this.maps.keys()) if (!key.startsWith(`${image}/`)) this.maps.delete(key);
    for (const known of [this.finished, this.marks]) for (const key of known.keys()) if (!key.startsWith(`${image}/`)) known.delete(key);
  }
}
