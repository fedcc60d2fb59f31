"use strict";
// Follows the store: when it has changed, the main part of the page is fetched again and put in place.
// Everything can be read and done without it.
(() => {
  const live = document.getElementById("live");
  const main = document.getElementById("main");
  let last = null; // the main part as the server wrote it
  let stream = null;
  let mark = null;
  let waiting = false;

  const say = (text) => {
    if (live.textContent !== text) live.textContent = text;
  };
  const fetched = async () => {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    // Tokens are those of this browser: they do not count as a change.
    return page.getElementById("main");
  };
  // What somebody has begun to fill in or has opened stays as it is.
  const busy = () =>
    [...main.querySelectorAll("input, select, textarea")].some(
      (field) => field === document.activeElement || ("checked" in field && field.checked !== field.defaultChecked) ||
        (field.tagName !== "SELECT" && field.type !== "checkbox" && field.value !== field.defaultValue),
    );
  const put = (fresh) => {
    const open = [...main.querySelectorAll("details")].map((one) => one.open);
    const focus = document.activeElement?.getAttribute("href");
    main.replaceChildren(...fresh.childNodes);
    main.querySelectorAll("details").forEach((one, at) => open[at] && (one.open = true));
    if (focus) [...main.querySelectorAll("a")].find((one) => one.getAttribute("href") === focus)?.focus();
    sortTables(main);
  };
  const follow = async () => {
    if (waiting) return;
    waiting = true;
    try {
      const fresh = await fetched();
      const text = fresh.innerHTML;
      if (last !== null && text !== last && !busy()) {
        // Charts are drawn when a page is loaded.
        if (fresh.querySelector("#pictures")) location.reload();
        else put(fresh);
        last = text;
      } else if (last === null) last = text;
      say(`Followed the store at ${new Date().toLocaleTimeString()}`);
    } catch {
      say("The dashboard does not answer; this page may be old.");
    } finally {
      waiting = false;
    }
  };
  const listen = () => {
    if (stream || document.hidden) return;
    stream = new EventSource("/changes");
    stream.addEventListener("open", () => say("Following the store"));
    stream.addEventListener("error", () => say("The dashboard does not answer; this page may be old."));
    stream.addEventListener("change", (event) => {
      if (event.data !== mark) {
        mark = event.data;
        follow();
      }
    });
  };
  // A browser has few connections to a server: a page that nobody sees gives its own back.
  const leave = () => {
    stream?.close();
    stream = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", listen);
  listen();
})();
