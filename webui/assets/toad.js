// Keeps an open page true: the server sends parts of it as they change, and clocks are counted on here. Without it the
// page is the same, only it stands still.
"use strict";
(() => {
  const page = document.documentElement;
  const skew = Date.parse(page.dataset.now) - Date.now();
  const now = () => Date.now() + skew;
  const $ = (id) => document.getElementById(id);

  // ---- clocks ----
  const two = (n) => String(n).padStart(2, "0");
  const countdown = (ms) => {
    const s = Math.ceil(Math.max(ms, 0) / 1000);
    return s >= 3600 ? `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}` : `${Math.floor(s / 60)}:${two(s % 60)}`;
  };
  const span = (ms) => {
    const s = Math.floor(Math.max(ms, 0) / 1000);
    if (s < 120) return `${s} s`;
    if (s < 7200) return `${Math.floor(s / 60)} min`;
    if (s < 172800) return `${Math.floor(s / 3600)} h`;
    return `${Math.floor(s / 86400)} days`;
  };
  const write = (el, text) => { if (el.textContent !== text) el.textContent = text; };
  const tick = () => {
    const t = now();
    for (const el of document.querySelectorAll(".count[data-until]")) write(el, countdown(Date.parse(el.dataset.until) - t));
    for (const el of document.querySelectorAll("[data-since]")) write(el, span(Math.min(t - Date.parse(el.dataset.since), +el.dataset.most)));
    for (const el of document.querySelectorAll("rect[data-from]")) {
      const from = Date.parse(el.dataset.from), until = Date.parse(el.dataset.until);
      el.setAttribute("width", Math.round(Math.min(Math.max((t - from) / (until - from), 0), 1) * 1000));
    }
    for (const el of document.querySelectorAll("time[data-for]")) write(el, "for " + span(t - Date.parse(el.dateTime)));
    for (const el of document.querySelectorAll("time[data-age]")) {
      const ms = t - Date.parse(el.dateTime);
      write(el, ms < 1000 ? "just now" : span(ms) + " ago");
    }
  };
  setInterval(tick, 500);

  // ---- copying ----
  const unhide = (root) => { for (const b of root.querySelectorAll(".copy")) b.hidden = false; };
  const copy = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = Object.assign(document.createElement("textarea"), { value: text, className: "sr" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  };
  document.addEventListener("click", (e) => {
    const b = e.target.closest(".copy");
    if (!b) return;
    copy(b.dataset.copy).then(() => {
      const use = b.querySelector("use");
      use.setAttribute("href", "#i-yes");
      b.classList.add("done");
      say("Copied");
      setTimeout(() => { use.setAttribute("href", "#i-copy"); b.classList.remove("done"); }, 1500);
    }, () => say("The browser does not let this page copy"));
  });
  unhide(document);

  // ---- parts ----
  const say = (text) => write($("said"), text);
  const place = (el) => {
    const list = $(el.dataset.in);
    if (!list) return;
    const sorted = list.classList.contains("cards") ? [...list.children].find((c) => c.id > el.id) : null;
    list.insertBefore(el, sorted || null);
    const shelf = list.closest(".shelf");
    if (shelf) shelf.hidden = false; // or nobody could stand in it
  };
  const shelves = () => {
    for (const s of document.querySelectorAll(".shelf")) s.hidden = !s.querySelector(".card");
  };
  const keep = (old, el) => { // whoever stands in a part that is replaced stays where they were
    const at = document.activeElement;
    if (!old.contains(at)) return () => {};
    const key = at.dataset.copy ? `[data-copy="${CSS.escape(at.dataset.copy)}"]` : at.getAttribute("href") ? `[href="${CSS.escape(at.getAttribute("href"))}"]` : null;
    return () => { (key && el.querySelector(key) || (el.tabIndex = -1, el)).focus({ preventScroll: true }); };
  };
  let whole = null; // the ids of a burst that has all parts
  const part = (html) => {
    const box = document.createElement("template");
    box.innerHTML = html;
    const el = box.content.firstElementChild;
    if (!el || !el.id) return;
    if (whole) whole.add(el.id);
    unhide(el);
    const old = $(el.id);
    if (old && old.outerHTML === el.outerHTML) return;
    const back = old ? keep(old, el) : () => {};
    if (old && (!el.dataset.in || old.parentElement.id === el.dataset.in)) {
      old.replaceWith(el);
    } else {
      if (old) old.remove();
      place(el);
      el.classList.add("fresh");
    }
    back();
    if (el.dataset.say && (!old || old.dataset.say !== el.dataset.say)) {
      say(el.dataset.say);
      document.title = el.dataset.say + " · toad";
    }
  };

  // ---- the stream ----
  const live = $("live");
  const show = (ok) => {
    live.hidden = false;
    live.classList.toggle("lost", !ok);
    write(live.lastElementChild, ok ? "live" : "reconnecting");
  };
  let source = null, seen = page.dataset.seen;
  const open = () => {
    if (source || !page.dataset.events) return;
    source = new EventSource(page.dataset.events + "?seen=" + encodeURIComponent(seen));
    source.addEventListener("hello", (e) => {
      if (e.data !== page.dataset.build) return location.reload(); // another toad answers now
      show(true);
    });
    source.addEventListener("all", () => { whole = new Set(); });
    source.addEventListener("part", (e) => part(e.data));
    source.addEventListener("gone", (e) => { const el = $(e.data); if (el) el.remove(); });
    source.addEventListener("whole", (e) => {
      seen = e.data;
      if (whole) for (const el of document.querySelectorAll("[data-in]")) if (!whole.has(el.id)) el.remove();
      whole = null;
      shelves();
      tick();
    });
    source.onerror = () => {
      show(false);
      if (source && source.readyState === EventSource.CLOSED) { // refused: the browser does not come again by itself
        source = null;
        setTimeout(open, 5000);
      }
    };
  };
  const close = () => { if (source) source.close(); source = null; whole = null; };
  // A page that nobody looks at keeps nothing awake.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", () => { if (!document.hidden) open(); });
  tick();
})();
