// The page: it learns which run is served, opens the view that is asked for, and takes images in.

import { read, send, upload } from "./api.js";
import { complain, find, make, plural, say, show } from "./dom.js";
import { Explain } from "./explain.js";
import { Gallery } from "./gallery.js";
import { drawKey, setColours } from "./heat.js";
import { startIntake, startSamples } from "./intake.js";
import { Browser } from "./prototypes.js";
import { addMeanings, startTips, term } from "./tips.js";
import { WhatIf } from "./whatif.js";

let run, explain, browser, gallery;

// ── images ──

async function take(file) {
  if (!ready) { find("choose-words").textContent = "One moment …"; say("One moment: the page is still loading"); }
  if (!await started) { find("choose-words").textContent = "Drop an image here"; return; } // why not is on the page
  const { megabytes } = run.limits;
  if (file.size > megabytes * 1e6) { complain(`The file is larger than ${megabytes} MB; choose a smaller one.`); return; }
  location.hash = "#explain";
  explain.lookAt(() => upload(file), "Looking …");
}

const pick = (index) => explain.lookAt(() => send(`/api/samples/${index}`), "Looking …");

// ── views ──

function route() {
  const asked = location.hash.slice(1);
  const view = (asked === "gallery" && !run.plain) || (asked === "prototypes" && run.prototypes > 0) ? asked : "explain";
  for (const name of ["explain", "gallery", "prototypes"]) {
    show(`view-${name}`, name === view);
    if (name === view) find(`to-${name}`).setAttribute("aria-current", "page"); else find(`to-${name}`).removeAttribute("aria-current");
  }
  if (view === "gallery") gallery.open();
  if (view === "prototypes") browser.open();
}

function introduce() {
  document.title = `${run.name} · dprotonet`;
  addMeanings(run.meanings);
  find("run").replaceChildren(`${run.name} · `, term("class", plural(run.classes.length, "class", "classes")), " · ", run.prototypes ? term("prototype", plural(run.prototypes, "prototype")) : run.plain ? "a plain network" : "black box");
  find("runs").replaceChildren(...run.runs.filter((one) => one.model !== run.model).map((one) => make("a", { href: `/?model=${one.model}${location.hash}`, text: `Switch to ${one.name}` })));
  show("runs", run.runs.length > 1);
  show("to-prototypes", run.prototypes > 0);
  show("to-gallery", !run.plain);
  show("sourceless", run.prototypes > 0 && !run.sources);
  find("decoder").textContent = `Heatmaps by the decoder ${run.decoder}.`;
  show("decoder", run.sources);
}

async function start() {
  run = await read("/api/run");
  introduce();
  setColours(run.heat);
  drawKey(find("key"));
  const whatif = new WhatIf(run, () => explain.ask());
  explain = new Explain(run, whatif);
  browser = new Browser(run, whatif);
  gallery = new Gallery(run, pick);
  window.addEventListener("hashchange", route);
  startSamples(run, pick);
  route();
  const image = new URLSearchParams(location.search).get("image"); // the other run has looked at it
  if (image) explain.lookAt(() => send(`/api/images/${encodeURIComponent(image)}/evidence`), "Looking …");
}

// An image may come in before the page knows its run.
let ready = false;
const started = start().then(() => { ready = true; return true; }, (error) => { complain(error.message); return false; });
startIntake(take);
startTips();
