// The page: which view is open, which image is looked at, and who is told when something changes.

import { read, remove, send, upload } from "./api.js";
import { showAnswer, showQuestion } from "./answer.js";
import { complain, find, make, plural, say, show } from "./dom.js";
import { Evidence } from "./evidence.js";
import { draw, drawKey, picture, setColours } from "./heat.js";
import { startIntake, startSamples } from "./intake.js";
import { Methods } from "./methods.js";
import { Places } from "./places.js";
import { Browser } from "./prototypes.js";
import { WhatIf } from "./whatif.js";

const MOST_ROWS = 10;
const state = { image: "", picture: null, plain: null, reading: null, label: null, truth: null, top: 3, turn: 0, looking: 0 };
const sources = new Map(); // prototype to its picture, or a promise of it
let run, places, evidence, methods, whatif, browser;

const look = () => ({ share: Number(find("share").value) / 100, opacity: Number(find("opacity").value) / 100, box: find("box").checked });

function sourceOf(prototype, ready) {
  const found = sources.get(prototype);
  if (found === undefined && run.sources) {
    sources.set(prototype, null);
    picture(`/api/prototypes/${prototype}/picture?run=${run.key}`).then((image) => { sources.set(prototype, image); ready(); }, (error) => complain(error.message));
  }
  return found;
}

function redraw() {
  find("share-said").textContent = `${find("share").value} %`;
  find("opacity-said").textContent = `${find("opacity").value} %`;
  evidence.draw();
  methods.draw();
}

// ── an image comes in ──

async function look_at(request, words) {
  const turn = ++state.looking;
  state.turn += 1; // answers to questions about the image before are late
  complain("");
  find("choose-words").textContent = words;
  say(words);
  find("drop").classList.add("busy");
  await places.cancel();
  working(null);
  try {
    const reading = await request();
    const shown = await picture(`/api/images/${reading.image}/picture`);
    if (turn !== state.looking) return;
    Object.assign(state, { image: reading.image, picture: shown, plain: reading, truth: reading.truth ?? null, label: null, top: 3 });
    document.body.classList.add("with-image");
    show("shown", true);
    draw(find("shown"), shown, null, look());
    if (find("drop").getBoundingClientRect().top < 0) find("drop").scrollIntoView();
    if (whatif.off.size) await ask(); else present(reading);
  } catch (error) {
    if (turn === state.looking) complain(error.message);
  } finally {
    if (turn === state.looking) {
      find("choose-words").textContent = state.image ? "Drop another image here" : "Drop an image here";
      find("drop").classList.remove("busy");
    }
  }
}

async function take(file) {
  if (!ready) { find("choose-words").textContent = "One moment …"; say("One moment: the page is still loading"); }
  if (!await started) { find("choose-words").textContent = "Drop an image here"; return; } // why not is on the page
  const { megabytes } = run.limits;
  if (file.size > megabytes * 1e6) { complain(`The file is larger than ${megabytes} MB; choose a smaller one.`); return; }
  location.hash = "#explain";
  look_at(() => upload(file), "Looking …");
}

const pick = (index) => look_at(() => send(`/api/samples/${index}`), "Looking …");

// ── the answer, and questions about it ──

async function ask() {
  const turn = ++state.turn;
  if (!state.image) return;
  try {
    const reading = await send(`/api/images/${state.image}/evidence`, { label: state.label, off: whatif.list(), top: state.top });
    if (turn === state.turn) present(reading);
  } catch (error) { if (turn === state.turn) complain(error.message); }
}

function choose(label) { state.label = label; ask(); }

function present(reading) {
  state.reading = reading;
  showAnswer(run, reading, { truth: state.truth, label: reading.label, choose });
  showQuestion(run, reading);
  show("evidence", run.prototypes > 0);
  if (run.prototypes) evidence.show(reading);
  show("more-rows", reading.rows.length < Math.min(MOST_ROWS, run.prototypes) && reading.others > 0);
  methods.ask(reading.image, reading.label, reading.class_name);
  if (whatif.off.size) whatif.tell(state.plain, reading);
  showDownloads(reading);
  if (run.sources) findPlaces(reading);
}

async function findPlaces(reading) {
  const wanted = reading.rows.map((row) => row.prototype);
  show("again", false);
  if (!places.lacking(reading.image, wanted).length) { await places.cancel(); working(null); showDownloads(reading); return; }
  working({ done: 0, total: 0 });
  try {
    const end = await places.find(reading.image, wanted, working);
    if (reading !== state.reading) return;
    working(null);
    show("again", end === "cancelled");
    say(end === "done" ? "The heatmaps are finished" : "Cancelled");
    showDownloads(reading);
  } catch (error) {
    if (reading !== state.reading) return;
    working(null);
    show("again", true);
    complain(error.message);
  }
}

let saidAt = 0;
function working(news) {
  show("working", news !== null);
  const bar = find("progress");
  if (!news || !news.total) { bar.removeAttribute("value"); saidAt = 0; return; }
  bar.max = news.total;
  bar.value = news.done;
  const quarter = Math.floor((4 * news.done) / news.total);
  if (quarter > saidAt && quarter < 4) { saidAt = quarter; say(`Heatmaps ${25 * quarter} % finished`); }
}

// ── downloads ──

function showDownloads(reading) {
  const ready = reading.rows.length > 0 && !places.lacking(reading.image, reading.rows.map((row) => row.prototype)).length;
  const base = `/api/images/${reading.image}`;
  const off = whatif.list().map((number) => `&off=${number}`).join("");
  const links = [make("button", { type: "button", class: "link", text: "Numbers (.json)", on: { click: () => saveJson(reading, ready) } })];
  if (ready) {
    links.unshift(make("a", { href: `${base}/sheet?label=${reading.label}&top=${reading.rows.length}${off}`, download: "explanation.png", text: "Picture (.png)" }));
    links.push(...reading.rows.map((row) => make("a", { href: `${base}/places/${row.prototype}/image`, download: `prototype-${row.prototype}.npy`, text: `Map ${row.prototype} (.npy)` })));
  }
  find("downloads").replaceChildren(...links);
}

async function saveJson(reading, ready) {
  const maps = ready ? await Promise.all(reading.rows.map((row) => read(`/api/images/${reading.image}/places/${row.prototype}`))) : [];
  const text = JSON.stringify({ run: run.name, version: run.version, off: whatif.list(), ...reading, maps }, null, 1);
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  make("a", { href: address, download: "explanation.json" }).click();
  URL.revokeObjectURL(address);
}

// ── views ──

function route() {
  const browsing = location.hash === "#prototypes" && run.prototypes > 0;
  show("view-explain", !browsing);
  show("view-prototypes", browsing);
  for (const [id, here] of [["to-explain", !browsing], ["to-prototypes", browsing]]) {
    if (here) find(id).setAttribute("aria-current", "page"); else find(id).removeAttribute("aria-current");
  }
  if (browsing) browser.open();
}

async function start() {
  run = await read("/api/run");
  document.title = `${run.name} · dprotonet`;
  find("run").textContent = `${run.name} · ${plural(run.classes.length, "class", "classes")} · ${run.prototypes ? plural(run.prototypes, "prototype") : "black box"}`;
  show("to-prototypes", run.prototypes > 0);
  show("sourceless", run.prototypes > 0 && !run.sources);
  find("decoder").textContent = `Heatmaps by the decoder ${run.decoder}.`;
  show("decoder", run.sources);
  setColours(run.heat);
  drawKey(find("key"));
  places = new Places(() => evidence.draw());
  whatif = new WhatIf(run, ask);
  evidence = new Evidence({
    picture: () => state.picture, source: sourceOf, look,
    map: (where, prototype) => places.map(state.image, where, prototype),
    toggle: (prototype) => whatif.toggle(prototype), isOff: () => whatif.off.size,
  });
  methods = new Methods(run, { picture: () => state.picture, look });
  browser = new Browser(run, whatif);
  for (const id of ["share", "opacity", "box"]) find(id).addEventListener("input", redraw);
  find("cancel").addEventListener("click", async () => { if (places.job) await remove(`/api/jobs/${places.job}`).catch(() => {}); });
  find("again").addEventListener("click", () => findPlaces(state.reading));
  find("more-rows").addEventListener("click", () => { state.top = Math.min(MOST_ROWS, state.top + 3); ask(); });
  window.addEventListener("hashchange", route);
  redraw();
  startSamples(run, pick);
  route();
}

// An image may come in before the page knows its run.
let ready = false;
const started = start().then(() => { ready = true; return true; }, (error) => { complain(error.message); return false; });
startIntake(take);
