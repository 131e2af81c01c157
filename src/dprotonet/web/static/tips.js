// What a number means: said under the pointer, at the focus, at a tap, and to screen readers.
//
// Whatever has `data-meaning` shows the meaning of that name. A number of its own is a button (`term`); inside
// another button (`described`) the meaning is said while that has the focus. Escape hides it.

import { find, make } from "./dom.js";

const SLOW = 350; // milliseconds of rest before a pointer that only passes by is told
let shownFor = null;
let timer = 0;
let resting = null; // where the pointer was last: what appears under it, as a dialog does, is not pointed at

const idOf = (name) => `meaning-${name}`;

// Meanings by name; they are kept in the page, hidden, for `aria-describedby`.
export function addMeanings(found) {
  find("meanings").append(...Object.entries(found).filter(([name]) => !find(idOf(name))).map(([name, text]) => make("p", { id: idOf(name), text })));
}

// A number or its name, as a button that tells what it means.
export function term(name, content, kind = "") {
  const children = [content].flat().map((one) => (typeof one === "string" ? document.createTextNode(one) : one));
  return make("button", { type: "button", class: `term ${kind}`, "data-meaning": name, "aria-describedby": idOf(name) }, ...children);
}

// A number inside a button that does something else.
export function described(button, name) {
  button.setAttribute("aria-describedby", idOf(name));
  return button;
}

export function startTips() {
  for (const button of document.querySelectorAll("button[data-meaning]")) described(button, button.dataset.meaning);
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const over = event.target.closest("[data-meaning]");
    if (over && resting?.clientX === event.clientX && resting.clientY === event.clientY) return;
    if (over && over !== shownFor) later(() => tell(over), over.classList.contains("term") ? 80 : SLOW);
    else if (over || event.target.closest("#tip")) clearTimeout(timer); // it may be read, and copied from
    else if (shownFor !== focused()) later(hide, 200);
  });
  document.addEventListener("pointermove", (event) => { resting = event; }, { passive: true });
  document.addEventListener("focusin", () => { const here = focused(); if (here) tell(here); else hide(); });
  document.addEventListener("focusout", hide);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.term");
    if (button) tell(button); else if (!event.target.closest("#tip")) hide();
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  window.addEventListener("scroll", () => { if (shownFor) place(); }, { passive: true, capture: true });
  window.addEventListener("resize", hide);
}

// Where the focus is, if that has a meaning; after a click on a button that does something it has none.
function focused() {
  const here = document.activeElement;
  if (!here?.matches(":focus-visible, .term")) return null;
  return here.dataset.meaning ? here : here.querySelector("[data-meaning]");
}

function later(act, milliseconds) {
  clearTimeout(timer);
  timer = setTimeout(act, milliseconds);
}

function tell(anchor) {
  clearTimeout(timer);
  const text = find(idOf(anchor.dataset.meaning))?.textContent;
  if (!text || !anchor.isConnected) return;
  shownFor = anchor;
  const tip = find("tip");
  (anchor.closest("dialog") ?? document.body).append(tip); // above a dialog, it has to be in it
  tip.textContent = text;
  tip.hidden = false;
  place();
}

function hide() {
  clearTimeout(timer);
  shownFor = null;
  find("tip").hidden = true;
}

// Beneath what it explains, or above it where there is no room; never beyond the window.
function place() {
  if (!shownFor.isConnected) { hide(); return; }
  const tip = find("tip");
  const at = shownFor.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = tip;
  const left = Math.min(Math.max(8, at.left + at.width / 2 - width / 2), document.documentElement.clientWidth - width - 8);
  const below = at.bottom + 6 + height <= window.innerHeight;
  tip.style.left = `${left}px`;
  tip.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - 6 - height)}px`;
}
