// The server's answers, and its complaints as errors in words.

// Which of the runs served this page is about; every request says so.
export const MODEL = new URLSearchParams(location.search).get("model") === "1" ? 1 : 0;

export function at(path, model = MODEL) {
  return model ? `${path}${path.includes("?") ? "&" : "?"}model=${model}` : path;
}

async function asked(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
  if (answer.ok) return answer;
  let words = `The server said ${answer.status}.`;
  try {
    const content = await answer.json();
    words = typeof content.detail === "string" ? content.detail : words;
  } catch { /* not JSON: the number has to do */ }
  const problem = new Error(words[0].toUpperCase() + words.slice(1));
  problem.status = answer.status;
  throw problem;
}

const json = (method, body) => ({ method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const read = async (path, model) => (await asked(at(path, model))).json();
export const send = async (path, body = {}, model = MODEL) => (await asked(at(path, model), json("POST", body))).json();
export const remove = async (path, model) => (await asked(at(path, model), { method: "DELETE" })).json();
export const bytes = async (path, model) => (await asked(at(path, model))).arrayBuffer();

export async function upload(file) {
  const form = new FormData();
  form.append("file", file, file.name || "pasted image");
  return (await asked(at("/api/images"), { method: "POST", body: form })).json();
}

// A job's news as they come; resolves at its end. `hear` is told of every change.
export function watch(job, hear, model) {
  return new Promise((resolve, reject) => {
    const source = new EventSource(at(`/api/jobs/${encodeURIComponent(job)}/events`, model));
    let failures = 0;
    source.onmessage = (event) => {
      failures = 0;
      const news = JSON.parse(event.data);
      hear(news);
      if (["done", "failed", "cancelled"].includes(news.state)) {
        source.close();
        resolve(news);
      }
    };
    source.onerror = () => {
      failures += 1;
      if (source.readyState === EventSource.CLOSED || failures > 4) {
        source.close();
        reject(new Error("The connection to the server was lost."));
      }
    };
  });
}
