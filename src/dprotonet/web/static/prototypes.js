// The prototype browser: all classes, how pure each prototype is, and the training images it is nearest to.

import { at, read, send } from "./api.js";
import { complain, find, make, percent, plural, points, redrawn } from "./dom.js";
import { described, term } from "./tips.js";
import { REASONS } from "./whatif.js";

const PAGE = 1000; // prototypes in an answer of the server
const SHOWN = 300; // cards at first, and as many more each time

export class Browser {
  constructor(run, whatif) {
    Object.assign(this, { run, whatif });
    this.items = [];
    this.state = "";
    this.most = SHOWN;
    const chooser = find("browse-class");
    chooser.append(make("option", { value: "", text: "all" }), ...run.classes.map((name, label) => make("option", { value: label, text: name })));
    for (const id of ["browse-class", "browse-order"]) find(id).addEventListener("change", () => { this.most = SHOWN; this.show(); });
    find("browse-more").addEventListener("click", () => { this.most += SHOWN; this.show(); });
  }

  async open(again = false) {
    try {
      const found = await read(`/api/prototypes?limit=${PAGE}`);
      if (!again || found.state !== this.state) {
        this.items = await all(found);
        this.state = found.state;
      }
      const busy = found.state === "preparing";
      find("browse-working").hidden = found.state === "ready";
      find("browse-progress").hidden = !busy;
      if (found.total) { find("browse-progress").max = found.total; find("browse-progress").value = found.done; }
      find("browse-said").textContent = busy ? "Going over the training images once, to see which prototypes are pure." : `Purity is not known: ${found.message}`;
      this.show();
      if (busy && location.hash === "#prototypes") setTimeout(() => this.open(true), 1500);
    } catch (error) { complain(error.message); }
  }

  show() {
    const label = find("browse-class").value;
    const chosen = this.items.filter((item) => label === "" || item.label === Number(label));
    const groups = grouped(chosen).sort(ORDERS[find("browse-order").value]);
    redrawn(find("browse"), () => find("browse").replaceChildren(...groups.slice(0, this.most).map((group) => this.card(group))));
    find("browse-more").hidden = groups.length <= this.most;
    find("browse-more").textContent = `Show more (${Math.min(this.most, groups.length)} of ${groups.length})`;
  }

  card([item, ...twins]) {
    const off = [item, ...twins].every((one) => this.whatif.has(one.prototype));
    return make("li", {}, described(make("button", { type: "button", class: off ? "proto off" : "proto", "aria-label": cardName(item, off), on: { click: () => this.detail(item, twins) } },
      this.run.sources ? make("img", { src: at(`/api/prototypes/${item.prototype}/place?run=${this.run.key}`), alt: "", loading: "lazy", width: 160, height: 160 }) : null,
      make("strong", { text: item.class_name }),
      make("span", { class: "muted", text: `#${item.prototype}${item.part && `, ${item.part}`}${twins.length ? ` and ${plural(twins.length, "duplicate")}` : ""}` }),
      purity(item),
      off ? make("span", { class: "tag bad", text: "off" }) : null), "purity"));
  }

  detail(item, twins) {
    const dialog = find("dialog");
    const close = make("button", { type: "button", class: "quiet", text: "Close", on: { click: () => dialog.close() } });
    const facts = [
      item.sources.length > 1 ? term("prototype", `mixed from ${item.sources.length} training images`) : null,
      term("weight", `weight ${points(item.weight)}`),
      item.fires === null ? null : term("decides", `the main reason for ${plural(item.fires, "training image")}`),
      twins.length ? term("duplicates", `same as ${twins.map((one) => `#${one.prototype}`).join(", ")}`) : null,
    ];
    redrawn(find("dialog-body"), () => find("dialog-body").replaceChildren(
      make("div", { class: "row spread" }, make("h2", { id: "dialog-title", text: `${item.class_name}, prototype ${item.prototype}${item.part && `, ${item.part}`}` }), close),
      make("div", { class: "detail" },
        this.run.sources ? make("img", { src: at(`/api/prototypes/${item.prototype}/place?run=${this.run.key}`), alt: `${item.placed ? "A place of training image" : "Training image"} ${item.source}`, width: 224, height: 224 }) : null,
        make("div", {}, term("purity", purity(item)), make("ul", { class: "facts" }, ...facts.filter(Boolean).map((fact) => make("li", {}, fact))),
          item.placed ? this.naming(item, twins) : null,
          make("p", { text: "Is it wrong? Switch it off, and say why:" }), this.marks(item, twins))),
      make("h3", { text: item.nearest.length ? "The training images it is nearest to" : "" }),
      make("ul", { class: "near" }, ...item.nearest.map((near) => this.near(item, near)))));
    if (!dialog.open) dialog.showModal();
  }

  naming(item, twins) {
    const name = make("input", { id: "part-name", maxlength: 40, required: true, autocomplete: "off", placeholder: item.part || "beak" });
    const give = async (event) => {
      event.preventDefault();
      try {
        const said = await send(`/api/prototypes/${item.prototype}/name`, { name: name.value });
        item.part = said.part;
        this.show();
        this.detail(item, twins);
      } catch (error) { complain(error.message); }
    };
    return make("form", { class: "naming", on: { submit: give } },
      make("label", { for: "part-name", text: "What do you call this part?" }), name, make("button", { text: "Name it" }));
  }

  marks(item, twins) {
    const all = [item, ...twins].map((one) => one.prototype);
    const now = this.whatif.off.get(item.prototype);
    const buttons = Object.entries(REASONS).map(([reason, words]) => make("button", { type: "button", class: "chip", "aria-pressed": String(now === reason), text: words, on: { click: () => {
      for (const number of all) if (now === reason || this.whatif.off.get(number) !== reason) this.whatif.toggle(number, reason);
      this.show();
      this.detail(item, twins);
    } } }));
    return make("div", { class: "chips", role: "group", "aria-label": "Reasons" }, ...buttons);
  }

  near(item, near) {
    const own = near.label === item.label;
    return make("li", {}, make("figure", { class: own ? "" : "foreign" },
      make("img", { src: at(`/api/training/${near.index}/picture?run=${this.run.key}`), alt: near.name, width: 112, height: 112, loading: "lazy" }),
      make("figcaption", {}, `${own ? "" : "✗ "}${this.run.classes[near.label]} `, term("near", points(near.similarity)))));
  }
}

const ORDERS = {
  purity: ([one], [other]) => (one.purity ?? 2) - (other.purity ?? 2) || one.prototype - other.prototype,
  fires: ([one], [other]) => (other.fires ?? -1) - (one.fires ?? -1) || one.prototype - other.prototype,
  class: ([one], [other]) => one.prototype - other.prototype,
};

// All pages, the first of which is there.
async function all(first) {
  const items = [...first.prototypes];
  while (items.length < first.listed) {
    const page = await read(`/api/prototypes?offset=${items.length}&limit=${PAGE}`);
    if (!page.prototypes.length) break;
    items.push(...page.prototypes);
  }
  return items;
}

// Prototypes that coincide, together.
function grouped(items) {
  const seen = new Set();
  const known = new Map(items.map((item) => [item.prototype, item]));
  const groups = [];
  for (const item of items) {
    if (seen.has(item.prototype)) continue;
    const twins = item.duplicates.map((number) => known.get(number)).filter((other) => other && !seen.has(other.prototype));
    groups.push([item, ...twins]);
    [item, ...twins].forEach((one) => seen.add(one.prototype));
  }
  return groups;
}

const pure = (item) => `${percent(item.purity).replace(".0", "")} pure`;

function cardName(item, off) {
  const facts = [item.part, item.purity === null ? "" : pure(item), off ? "switched off" : ""].filter(Boolean);
  return `Prototype ${item.prototype} of ${item.class_name}${facts.map((fact) => `, ${fact}`).join("")}`;
}

function purity(item) {
  if (item.purity === null) return make("span", { class: "muted", text: "purity not known yet" });
  const fill = make("span", { class: item.purity < 0.5 ? "fill against" : "fill" });
  fill.style.width = `${100 * item.purity}%`;
  return make("span", { class: "purity" }, make("span", { class: "track", "aria-hidden": "true" }, fill), make("span", { text: pure(item), "data-meaning": "purity" }));
}
