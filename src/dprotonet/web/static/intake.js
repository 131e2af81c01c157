// How an image comes in: dropped, pasted, chosen, or one of the test images.

import { at, read } from "./api.js";
import { find, make, show } from "./dom.js";

const PAGE = 12;

export function startIntake(take) {
  const zone = find("drop");
  const chosen = find("file");
  const takeChosen = () => {
    const [file] = chosen.files;
    chosen.value = "";
    if (file) take(file);
  };
  chosen.addEventListener("change", takeChosen);
  takeChosen(); // it may have been chosen before this script was there
  for (const kind of ["dragenter", "dragover"]) {
    document.addEventListener(kind, (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      zone.classList.add("over");
    });
  }
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) zone.classList.remove("over"); });
  document.addEventListener("drop", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    zone.classList.remove("over");
    if (event.dataTransfer.files.length) take(event.dataTransfer.files[0]);
  });
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files][0];
    if (file) take(file);
  });
}

export function startSamples(run, pick) {
  const chooser = find("samples-class");
  chooser.append(make("option", { value: "", text: "all classes" }));
  run.classes.forEach((name, label) => chooser.append(make("option", { value: label, text: name })));
  let offset = 0;
  let total = 0;
  const list = async () => {
    const label = chooser.value === "" ? "" : `&label=${chooser.value}`;
    let found;
    try {
      found = await read(`/api/samples?offset=${offset}&limit=${PAGE}${label}`);
    } catch (error) {
      note(error.message);
      return;
    }
    if (!found.ready) { note("Reading the run's data …"); setTimeout(list, 1500); return; }
    total = found.total;
    if (found.reason) { gone(found.reason); return; }
    note(total ? "" : "There are none.");
    find("samples").replaceChildren(...found.samples.map((sample) => tile(run, sample, pick)));
    show("samples-more", total > PAGE);
  };
  chooser.addEventListener("change", () => { offset = 0; list(); });
  find("samples-more").addEventListener("click", () => { offset = offset + PAGE >= total ? 0 : offset + PAGE; list(); });
  list();
}

function tile(run, sample, pick) {
  const name = run.classes[sample.label];
  const image = make("img", { src: at(`/api/samples/${sample.index}/picture?run=${run.key}`), alt: "", width: 72, height: 72, loading: "lazy" });
  const button = make("button", { type: "button", class: "tile", title: `${name} (${sample.name})`, "aria-label": `Test image ${sample.index}, ${name}` }, image);
  button.addEventListener("click", () => pick(sample.index));
  return make("li", {}, button);
}

function note(words) {
  find("samples-note").textContent = words;
  show("samples-note", Boolean(words));
}

function gone(reason) {
  for (const id of ["samples-class", "samples-more"]) show(id, false);
  note(`The run's data is not here, so there are no test images to try: ${reason}.`);
}
