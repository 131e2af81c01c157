// The evidence, row by row: this part of your image looks like that part of a training image.

import { find, make, plural, points, redrawn, signed } from "./dom.js";
import { draw } from "./heat.js";
import { term } from "./tips.js";

const shownPoints = (value) => Math.round(100 * value) / 100;

export class Evidence {
  constructor({ picture, source, map, mark, look, toggle, isOff }) {
    Object.assign(this, { picture, source, map, mark, look, toggle, isOff });
    this.rows = [];
  }

  // Rows, the sum of the others, and the total: as shown, to the last digit, they add up.
  show(reading) {
    this.reading = reading;
    const most = Math.max(...reading.rows.map((row) => Math.abs(row.points)), 1e-9);
    this.rows = reading.rows.map((row) => this.row(row, most));
    redrawn(find("rows"), () => find("rows").replaceChildren(...this.rows.map((row) => row.element)));
    find("sum").replaceChildren(...sums(reading, this.isOff()));
    this.draw();
  }

  row(item, most) {
    const mine = make("canvas", { class: "tile-canvas", role: "img", "aria-label": `Your image with the place that looks like prototype ${item.prototype}` });
    const theirs = make("canvas", { class: "tile-canvas", role: "img", "aria-label": `Training image ${item.source} with the place of prototype ${item.prototype}` });
    const worth = make("p", { class: "worth" });
    const element = make("li", { class: "evidence-row" },
      make("figure", {}, mine, make("figcaption", { text: "your image" })),
      make("span", { class: "like", text: item.like }),
      make("figure", {}, theirs, make("figcaption", { text: item.source, title: item.source })),
      this.numbers(item, most, worth));
    return { item, mine, theirs, worth, element };
  }

  numbers(item, most, worth) {
    const fill = make("span", { class: item.points < 0 ? "fill against" : "fill" });
    fill.style.width = `${(100 * Math.abs(item.points)) / most}%`;
    const off = make("button", { type: "button", class: "quiet", text: "Switch off", "aria-label": `Switch off prototype ${item.prototype}`, on: { click: () => this.toggle(item.prototype) } });
    return make("div", { class: "numbers" },
      make("p", { class: "of" }, make("strong", { text: item.class_name }), " ", term("prototype", `prototype ${item.prototype}${item.part && `, ${item.part}`}`, "muted")),
      make("p", { class: "product" },
        factor(points(item.similarity), "similarity"), make("span", { class: "sign", text: "×" }),
        factor(points(item.weight), "weight"), make("span", { class: "sign", text: "=" }),
        factor(signed(item.points), "points", item.points < 0 ? "result against" : "result")),
      make("span", { class: "track", "aria-hidden": "true" }, fill),
      item.ahead ? make("p", { class: "ahead" }, term("lead", item.ahead, "muted")) : null,
      worth, make("p", { class: "row gap" }, off));
  }

  // Whether the row stays under noise and its places look alike, once that is known.
  tell({ item, worth }) {
    item.mark ??= this.mark(item.prototype) ?? null;
    if (!item.mark || worth.childElementCount) return;
    worth.append(term("steady", item.mark.said, "muted"));
    if (item.mark.warning) worth.append(" ", term("differ", `Careful: ${item.mark.warning}`, "careful"));
  }

  draw() {
    for (const row of this.rows) {
      const { item, mine, theirs } = row;
      this.tell(row);
      const own = this.picture();
      if (own) draw(mine, own, this.map("image", item.prototype), this.look(), item.place);
      const source = this.source(item.prototype, () => this.draw());
      if (source) draw(theirs, source, this.map("source", item.prototype), this.look(), item.source_place);
    }
  }
}

function factor(value, unit, kind = "") {
  return term(unit, [make("span", { class: "value", text: value }), " ", make("span", { class: "unit", text: unit })], `factor ${kind}`);
}

function sums(reading, off) {
  const total = shownPoints(reading.score);
  const rest = total - reading.rows.reduce((sum, row) => sum + shownPoints(row.points), 0);
  const split = `${signed(reading.rest_for)} for, ${signed(reading.rest_against)} against`;
  const lines = [];
  if (reading.others) lines.push(line("rest", plural(reading.others, "other prototype"), signed(shownPoints(rest)), split));
  if (off) lines.push(line("points", `${plural(off, "prototype")} switched off`, "0.00", ""));
  lines.push(line("score", `Score of ${reading.class_name}`, points(total), "", "total"));
  return lines;
}

function line(meaning, name, value, note, kind = "") {
  return make("p", { class: `line ${kind}`, "data-meaning": meaning }, term(meaning, name, "name"), make("span", { class: "muted", text: note }), make("span", { class: "value", text: value }));
}
