// What can be kept of an explanation: a picture, the numbers, the raw maps.

import { at, read } from "./api.js";
import { find, make } from "./dom.js";

export class Downloads {
  constructor(run, { lacking, off }) { Object.assign(this, { run, lacking, off }); }

  show(reading) {
    const ready = reading.rows.length > 0 && !this.lacking(reading).length;
    const base = `/api/images/${reading.image}`;
    const off = this.off().map((number) => `&off=${number}`).join("");
    const links = [make("button", { type: "button", class: "link", text: "Numbers (.json)", on: { click: () => this.saveJson(reading, ready) } })];
    if (ready) {
      links.unshift(make("a", { href: at(`${base}/sheet?label=${reading.label}&top=${reading.rows.length}${off}`), download: "explanation.png", text: "Picture (.png)" }));
      links.push(...reading.rows.map((row) => make("a", { href: at(`${base}/places/${row.prototype}/image`), download: `prototype-${row.prototype}.npy`, text: `Map ${row.prototype} (.npy)` })));
    }
    find("downloads").replaceChildren(...links);
  }

  async saveJson(reading, ready) {
    const maps = ready ? await Promise.all(reading.rows.map((row) => read(`/api/images/${reading.image}/places/${row.prototype}`))) : [];
    const text = JSON.stringify({ run: this.run.name, version: this.run.version, off: this.off(), ...reading, maps }, null, 1);
    const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    make("a", { href: address, download: "explanation.json" }).click();
    URL.revokeObjectURL(address);
  }
}
