"use strict";
(() => {
  // tables: a click or Enter on a heading sorts by it
  const units = {ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, k: 1e3, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12,
    KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12};
  const value = text => {
    const match = /^-?[\d,]*\.?\d+(?:e[-+]?\d+)?/i.exec(text.trim());
    if (!match) return null;
    const unit = text.trim().slice(match[0].length).trim().split(" ")[0];
    return parseFloat(match[0].replaceAll(",", "")) * (units[unit] ?? 1);
  };
  for (const table of document.querySelectorAll("table.sorts")) {
    const heads = [...table.querySelectorAll("th")];
    heads.forEach((head, column) => {
      head.tabIndex = 0;
      const sort = () => {
        const up = head.getAttribute("aria-sort") === "descending" || !head.classList.contains("n")
          && head.getAttribute("aria-sort") !== "ascending";
        heads.forEach(other => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0];
        const keyed = [...body.rows].map(row => [value(row.cells[column].textContent), row.cells[column].textContent, row]);
        keyed.sort(([a, s], [b, t]) => {
          if (a === null || b === null) return a === b ? s.localeCompare(t) * (up ? 1 : -1) : a === null ? 1 : -1;
          return (a - b) * (up ? 1 : -1);
        });
        body.append(...keyed.map(([, , row]) => row));
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
    });
  }

  // the timeline
  const source = document.getElementById("timeline");
  if (!source) return;
  const data = JSON.parse(source.textContent), texts = data.texts;
  const canvas = document.querySelector(".timeline canvas"), pen = canvas.getContext("2d");
  const tool = name => document.querySelector(`[data-do=${name}]`), search = document.querySelector("[type=search]");
  const ROW = 20, CURVE = 44, RULE = 22, LABEL = 150;
  const end = Math.max(1, ...data.tracks.map(t => t.slices.reduce((m, s) => Math.max(m, s[0] + s[1]), 0)));
  let from = 0, to = end, hits = null, critical = false, chosen = null, width = 0;
  const lanes = [];
  let below = RULE;
  for (const track of data.tracks) { lanes.push({track, y: below, h: ROW}); below += ROW; }
  for (const counter of data.counters.slice(0, 24)) { lanes.push({counter, y: below, h: CURVE}); below += CURVE; }
  const height = below + 4;
  const words = ns => {
    const [scale, unit] = ns >= 1e9 ? [1e9, "s"] : ns >= 1e6 ? [1e6, "ms"] : ns >= 1e3 ? [1e3, "us"] : [1, "ns"];
    return `${+(ns / scale).toPrecision(5)} ${unit}`;
  };
  const x = ns => LABEL + (ns - from) / (to - from) * (width - LABEL);
  const at = px => from + (px - LABEL) / (width - LABEL) * (to - from);
  let waits = false;
  const later = () => { if (!waits) { waits = true; requestAnimationFrame(() => { waits = false; draw(); }); } };

  const first = (slices, ns) => {  // the first slice that ends after ns
    let low = 0, high = slices.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (slices[middle][0] + slices[middle][1] < ns) low = middle + 1; else high = middle;
    }
    return low;
  };
  function draw() {
    const scale = devicePixelRatio || 1, style = getComputedStyle(document.body);
    width = canvas.clientWidth;
    canvas.style.height = `${height}px`;
    if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
    if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const ink = style.getPropertyValue("--ink"), grid = style.getPropertyValue("--grid");
    pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    pen.textBaseline = "middle";
    const rough = (to - from) / Math.max(2, (width - LABEL) / 110), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough);
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      pen.fillStyle = grid;
      pen.fillRect(x(t), RULE - 4, 1, height);
      pen.fillStyle = ink;
      pen.fillText(words(t), x(t) + 3, RULE / 2);
    }
    for (const lane of lanes) {
      pen.save();
      pen.beginPath();
      pen.rect(LABEL, lane.y, width - LABEL, lane.h);
      pen.clip();
      if (lane.track) row(lane); else curve(lane);
      pen.restore();
      pen.fillStyle = ink;
      const name = (lane.track || lane.counter).name;
      pen.fillText(name.length > 22 ? `${name.slice(0, 21)}\u2026` : name, 2, lane.y + lane.h / 2);
    }
    function row({track, y}) {
      let last = -1;
      const slices = track.slices;
      for (let i = first(slices, from); i < slices.length && slices[i][0] <= to; i++) {
        const slice = slices[i], left = x(slice[0]), right = x(slice[0] + slice[1]);
        if (right - left < .5 && right <= last) continue;
        const faint = critical && !slice[5] || hits && !hits.has(slice[2]);
        pen.globalAlpha = faint ? .15 : 1;
        pen.fillStyle = texts[slice[4]];
        pen.fillRect(left, y + 2, Math.max(.8, right - left), ROW - 4);
        if (slice === chosen) { pen.strokeStyle = ink; pen.strokeRect(left, y + 2, right - left, ROW - 4); }
        if (right - left > 60 && !faint) {
          pen.fillStyle = light(texts[slice[4]]) ? "#15181b" : "#fff";
          const room = Math.floor((right - Math.max(left, LABEL) - 8) / 6.6);
          pen.fillText(texts[slice[2]].slice(0, Math.max(0, room)), Math.max(left, LABEL) + 4, y + ROW / 2);
        }
        last = left + Math.max(.8, right - left);
      }
      pen.globalAlpha = 1;
    }
    function curve({counter, y, h}) {
      const points = counter.points;
      let most = 0;
      for (let i = 1; i < points.length; i += 2) most = Math.max(most, points[i]);
      const up = v => y + h - 3 - v / (most || 1) * (h - 8);
      pen.beginPath();
      pen.moveTo(x(points[0]), y + h - 3);
      for (let i = 0; i < points.length; i += 2) {
        pen.lineTo(x(points[i]), up(points[i + 1]));
        pen.lineTo(x(i + 2 < points.length ? points[i + 2] : end), up(points[i + 1]));
      }
      pen.lineTo(x(end), y + h - 3);
      pen.fillStyle = "#9fc3d8";
      pen.fill();
      pen.fillStyle = ink;
      pen.fillText(`${+most.toPrecision(4)}`, LABEL + 3, y + 8);
    }
  }
  const light = colour => {
    const n = parseInt(colour.slice(1), 16);
    return (n >> 16) * .3 + (n >> 8 & 255) * .59 + (n & 255) * .11 > 140;
  };
  const look = (start, stop) => {
    const least = Math.max(1, end / 1e7), length = Math.min(end, Math.max(least, stop - start));
    from = Math.min(Math.max(0, start), end - length);
    to = from + length;
    later();
  };
  const zoom = (by, around = (from + to) / 2) => look(around - (around - from) * by, around + (to - around) * by);
  const pointed = event => {
    const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
    const lane = lanes.find(l => py >= l.y && py < l.y + l.h);
    if (!lane || px < LABEL) return null;
    const ns = at(px), near = (to - from) / (width - LABEL) * 2;
    if (lane.counter) {
      const points = lane.counter.points;
      let v = 0;
      for (let i = 0; i < points.length && points[i] <= ns; i += 2) v = points[i + 1];
      return {said: `${lane.counter.name}: ${v} at ${words(ns)}`};
    }
    const slices = lane.track.slices;
    for (let i = first(slices, ns - near); i < slices.length && slices[i][0] <= ns + near; i++) {
      return {slice: slices[i], said: describe(lane.track, slices[i])};
    }
    return null;
  };
  const describe = (track, s) => `${texts[s[2]]} (${track.name}): ${words(s[1])} from ${words(s[0])}`
    + `${texts[s[3]] ? `; ${texts[s[3]]}` : ""}${s[5] ? "; on the critical path" : ""}`;
  let held = null;
  canvas.addEventListener("pointerdown", event => {
    held = {px: event.clientX, from, to};
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", event => {
    if (held) {
      const shift = (held.px - event.clientX) / (width - LABEL) * (held.to - held.from);
      look(held.from + shift, held.to + shift);
      return;
    }
    const found = pointed(event);
    chosen = found ? found.slice || null : null;
    if (found) tool("said").textContent = found.said;
    later();
  });
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(event.deltaY * .002), at(event.clientX - canvas.getBoundingClientRect().left));
  }, {passive: false});
  canvas.addEventListener("dblclick", event => zoom(.5, at(event.clientX - canvas.getBoundingClientRect().left)));
  canvas.addEventListener("keydown", event => {
    const move = (to - from) * .2;
    const keys = {"+": () => zoom(.5), "=": () => zoom(.5), ArrowUp: () => zoom(.5), "-": () => zoom(2),
      ArrowDown: () => zoom(2), ArrowLeft: () => look(from - move, to - move), ArrowRight: () => look(from + move, to + move),
      "0": () => look(0, end), Home: () => look(0, end), "/": () => search.focus()};
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  tool("in").onclick = () => zoom(.5);
  tool("out").onclick = () => zoom(2);
  tool("fit").onclick = () => look(0, end);
  tool("critical").onchange = event => { critical = event.target.checked; later(); };
  const follow = [];
  let turn = 0;
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    hits = wanted ? new Set(texts.flatMap((text, i) => text.toLowerCase().includes(wanted) ? [i] : [])) : null;
    follow.length = turn = 0;
    let sum = 0;
    if (hits) for (const track of data.tracks) for (const slice of track.slices) if (hits.has(slice[2])) {
      follow.push([track, slice]);
      sum += slice[1];
    }
    tool("found").textContent = hits ? `${follow.length.toLocaleString("en")} found, ${words(sum)} in all; Enter: the next` : "";
    later();
  });
  search.addEventListener("keydown", event => {
    if (event.key !== "Enter" || !follow.length) return;
    const [track, slice] = follow[turn++ % follow.length], room = Math.max(slice[1] * 4, 1);
    chosen = slice;
    look(slice[0] - room, slice[0] + slice[1] + room);
    tool("said").textContent = describe(track, slice);
  });
  addEventListener("resize", later);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later);
  canvas.dataset.end = end;
  canvas.view = () => [from, to, chosen && texts[chosen[2]]];
  draw();
})();
