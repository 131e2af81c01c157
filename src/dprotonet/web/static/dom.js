// Elements by their description; text is always text, never markup.

export const find = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [kind, act] of Object.entries(value)) element.addEventListener(kind, act);
    else if (name === "text") element.textContent = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

// Draw a part of the page anew without taking the focus away from who moves by keyboard.
export function redrawn(container, draw) {
  const among = () => [...container.querySelectorAll("button, a[href], select")];
  const at = among().indexOf(document.activeElement);
  draw();
  if (at >= 0) among()[Math.min(at, among().length - 1)]?.focus();
}

export const show = (id, visible) => { find(id).hidden = !visible; };

// What a screen reader says; the page shows it elsewhere.
export function say(words) { find("status").textContent = words; }

export function complain(words) {
  const place = find("problem");
  place.textContent = words;
  place.hidden = !words;
  if (words) place.scrollIntoView({ block: "nearest" });
}

const minus = (text) => text.replace("-", "−");
export const points = (value) => minus(value.toFixed(2)).replace("−0.00", "0.00");
export const signed = (value) => (value > 0.004999 ? "+" : "") + points(value);
// As percent.py writes it: what only rounding makes whole or nothing is not called so.
export function percent(share, digits = 1) {
  const value = 100 * share, least = 10 ** -digits;
  if (value > 0 && value < least / 2) return `< ${least.toFixed(digits)} %`;
  if (value < 100 && value >= 100 - least / 2) return `> ${(100 - least).toFixed(digits)} %`;
  return `${value.toFixed(digits)} %`;
}
// For comparing two shares that may both be near the end.
export const closely = (share) => percent(share, 2);
export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
