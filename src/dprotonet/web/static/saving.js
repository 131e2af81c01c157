// A cleaned run on its way: the server goes on when this page is closed, and the next page asks how far it is.

import { read, remove, send, watch } from "./api.js";
import { complain, find, plural, say, show } from "./dom.js";

const SEEN = "dprotonet-saved-seen"; // the job whose end was read
const AGAIN = 3000; // milliseconds until a server that does not answer is asked again

export class Saving {
  constructor(changed) {
    this.changed = changed; // told when saving begins and ends
    this.job = null; // the one that is watched
    find("saving-cancel").addEventListener("click", () => remove(`/api/jobs/${this.job}`).catch((error) => complain(error.message)));
    find("saving-close").addEventListener("click", () => { localStorage.setItem(SEEN, this.ended); show("saving", false); });
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.ask(); });
    this.ask();
  }

  get busy() { return this.job !== null; }

  // What the server is at, if this page does not know: it was opened later, or another tab began it.
  async ask() {
    if (this.busy) return;
    try {
      const { job, off } = await read("/api/cleaned");
      if (!job || this.busy || job.job === localStorage.getItem(SEEN)) return;
      if (["waiting", "running"].includes(job.state)) this.follow(job, off); else this.end(job);
    } catch { /* the page says elsewhere that the server does not answer */ }
  }

  async begin(reasons) {
    try {
      this.follow(await send("/api/cleaned", { reasons }), Object.keys(reasons));
    } catch (error) {
      complain(error.message);
      this.ask(); // perhaps another tab is at it
    }
  }

  async follow(job, off) {
    this.job = job.job;
    this.what = `Saving a run without ${plural(off.length, "prototype")} (${off.map((number) => `#${number}`).slice(0, 6).join(", ")}${off.length > 6 ? " …" : ""})`;
    this.changed();
    this.tell(job);
    say(`${this.what}. It goes on if you close this page.`);
    try {
      const last = await watch(job.job, (news) => this.tell(news));
      this.job = null;
      this.end(last);
    } catch { this.lost(); }
    this.changed();
  }

  tell(news) {
    const bar = find("saving-progress");
    const count = news.total ? `, ${news.done} of ${news.total}` : "";
    find("saving-words").textContent = `${this.what}: ${news.step || "waiting for other work on the images"}${count}. It goes on if you close this page.`;
    if (news.total) { bar.max = news.total; bar.value = news.done; } else bar.removeAttribute("value");
    this.display({ running: true });
  }

  end(job) {
    this.ended = job.job;
    const done = job.state === "done";
    const words = done ? job.result.words : job.state === "cancelled" ? "Saving was cancelled; nothing was written." : `The cleaned run was not saved: ${job.message}`;
    find("saving-words").textContent = words;
    find("saving-path").textContent = done ? job.result.path : "";
    this.display({ path: done });
    say(words);
  }

  // The server was stopped, or the line is cut: ask until there is an answer.
  lost() {
    find("saving-words").textContent = "The connection to the server was lost while a cleaned run was being saved; asking again …";
    this.display({ running: true });
    const id = this.job;
    setTimeout(async () => {
      try {
        const { job, off } = await read("/api/cleaned");
        this.job = null;
        if (job?.job === id) { if (["waiting", "running"].includes(job.state)) this.follow(job, off); else this.end(job); }
        else this.end({ job: id, state: "failed", message: "the server was stopped in the meantime, and nothing is kept of a run that was not finished. Save it again." });
        this.changed();
      } catch { this.lost(); }
    }, AGAIN);
  }

  display({ running = false, path = false }) {
    show("saving", true);
    show("saving-progress", running);
    show("saving-cancel", running);
    show("saving-close", !running);
    show("saving-path", path);
  }
}

// Room beneath the page for what stays at the bottom of the window.
export function keepRoom() {
  const bottom = find("bottom");
  new ResizeObserver(() => { document.body.style.paddingBottom = `${bottom.offsetHeight}px`; }).observe(bottom);
}
