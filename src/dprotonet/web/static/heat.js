// Heatmaps on canvases: raw maps in, colours, threshold and box out, all in the browser.

let anchors = [];

export function setColours(colours) {
  anchors = colours.map((text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)));
}

function colour(value) {
  const place = Math.min(Math.max(value, 0), 1) * (anchors.length - 1);
  const below = Math.min(Math.floor(place), anchors.length - 2);
  const share = place - below;
  return anchors[below].map((start, at) => start + (anchors[below + 1][at] - start) * share);
}

export function drawKey(canvas) {
  const pen = canvas.getContext("2d");
  for (let x = 0; x < canvas.width; x += 1) {
    pen.fillStyle = `rgb(${colour(x / (canvas.width - 1)).map(Math.round).join(",")})`;
    pen.fillRect(x, 0, 1, canvas.height);
  }
}

// A field: values in [0, 1], row by row.
function field(values, width, height) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
  const range = high - low;
  const flat = !(range > 1e-5 * Math.max(Math.abs(low), Math.abs(high)));
  const scaled = Float32Array.from(values, (value) => (flat ? 0 : (value - low) / range));
  return { values: scaled, sorted: Float32Array.from(scaled).sort(), width, height, flat };
}

export function fromPreview({ side, data }) {
  return field(Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0)), side, side);
}

// An .npy file of float32, two axes: the only kind the server sends.
export function fromNpy(buffer) {
  const length = new DataView(buffer).getUint16(8, true);
  const header = new TextDecoder().decode(new Uint8Array(buffer, 10, length));
  const [, height, width] = header.match(/\((\d+), (\d+)\)/).map(Number);
  if (!header.includes("'<f4'")) throw new Error("The map is not float32.");
  return field(new Float32Array(buffer.slice(10 + length)), width, height);
}

// The value that the hottest `share` of the places reach.
function limit(map, share) {
  const kept = Math.max(1, Math.round(share * map.sorted.length));
  return map.sorted[map.sorted.length - kept];
}

// Round the hot spot that the hottest place lies in, in shares of width and height. A box round all hot spots
// would be as large as the image where two of them lie far apart.
export function boxOf(map, share) {
  const least = limit(map, share);
  const first = map.values.indexOf(map.sorted[map.sorted.length - 1]);
  const seen = new Uint8Array(map.values.length);
  let [left, top, right, bottom] = [map.width, map.height, 0, 0];
  for (const open = [first]; open.length;) {
    const at = open.pop();
    if (seen[at] || map.values[at] < least) continue;
    seen[at] = 1;
    const x = at % map.width;
    const y = (at - x) / map.width;
    left = Math.min(left, x); right = Math.max(right, x + 1);
    top = Math.min(top, y); bottom = Math.max(bottom, y + 1);
    if (x > 0) open.push(at - 1);
    if (x < map.width - 1) open.push(at + 1);
    if (y > 0) open.push(at - map.width);
    if (y < map.height - 1) open.push(at + map.width);
  }
  return [left / map.width, top / map.height, right / map.width, bottom / map.height];
}

// Of the hottest fifth of both maps, what they share: intersection over union, on a grid that both have.
export function overlap(one, other, side = 112) {
  const hot = [one, other].map((map) => {
    const least = limit(map, 0.2);
    return (x, y) => map.values[Math.floor(((y + 0.5) * map.height) / side) * map.width + Math.floor(((x + 0.5) * map.width) / side)] >= least;
  });
  let [both, either] = [0, 0];
  for (let y = 0; y < side; y += 1) {
    for (let x = 0; x < side; x += 1) {
      const [here, there] = hot.map((is) => is(x, y));
      both += here && there;
      either += here || there;
    }
  }
  return both / either;
}

function layer(map, { share, opacity }) {
  const canvas = new OffscreenCanvas(map.width, map.height);
  const pen = canvas.getContext("2d");
  const pixels = pen.createImageData(map.width, map.height);
  const least = share >= 1 ? -1 : limit(map, share);
  const soft = 0.06; // of the range: a step would look like an edge in the image
  map.values.forEach((value, at) => {
    const [red, green, blue] = colour(value);
    const shown = Math.min(1, Math.max(0, (value - least) / soft));
    pixels.data.set([red, green, blue, 255 * opacity * shown], 4 * at);
  });
  pen.putImageData(pixels, 0, 0);
  return canvas;
}

// The picture, over it the map, and the box of `place`, which is known before any map is.
export function draw(canvas, picture, map, look, place = null) {
  canvas.width = picture.naturalWidth;
  canvas.height = picture.naturalHeight;
  const pen = canvas.getContext("2d");
  pen.drawImage(picture, 0, 0);
  if (map && !map.flat) {
    pen.imageSmoothingQuality = "high";
    pen.drawImage(layer(map, look), 0, 0, canvas.width, canvas.height);
    if (look.box && look.share < 1) drawBox(pen, boxOf(map, look.share), canvas);
  }
  if (place) drawPlace(pen, place, canvas);
}

function drawPlace(pen, place, { width, height }) {
  const line = Math.max(1, Math.round(Math.max(width, height) / 110));
  const frame = [place.left * width, place.top * height, place.width * width, place.height * height];
  for (const [colour, wide] of [["#14181d", 2 * line], ["#ffe600", line]]) {
    pen.lineWidth = wide;
    pen.strokeStyle = colour;
    pen.strokeRect(...frame);
  }
}

function drawBox(pen, [left, top, right, bottom], { width, height }) {
  const line = Math.max(1, Math.round(Math.max(width, height) / 150));
  const frame = [left * width + line, top * height + line, (right - left) * width - 2 * line, (bottom - top) * height - 2 * line];
  pen.lineWidth = line;
  pen.strokeStyle = "#14181d";
  pen.strokeRect(...frame);
  pen.setLineDash([4 * line, 4 * line]);
  pen.strokeStyle = "#ffffff";
  pen.strokeRect(...frame);
  pen.setLineDash([]);
}

export function picture(path) {
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error("A picture could not be loaded."));
    image.src = path;
  });
}
