"use strict";
// Follows the store: when it has changed, the main part of the page is fetched again and put in place.
// Everything can be read and done without it.
(() => {
  const live = document.getElementById("live");
  const main = document.getElementById("main");
  const OLD = "The dashboard does not answer; this page may be old.";
  let mark = document.body.dataset.mark; // of the store, when this page was made
  let stream = null;
  let following = false;
  let later = false;

  const say = (text) => {
    if (live.textContent !== text) live.textContent = text;
  };
  // What somebody has begun to fill in or to tick stays as it is.
  const busy = () =>
    [...main.querySelectorAll("input, select, textarea")].some((field) => {
      if (field === document.activeElement) return true;
      if (field.type === "checkbox") return field.checked !== field.defaultChecked;
      return field.tagName !== "SELECT" && field.type !== "hidden" && field.value !== field.defaultValue;
    });
  const put = (fresh) => {
    const open = [...main.querySelectorAll("details")].map((one) => one.open);
    const focus = main.contains(document.activeElement) && document.activeElement.getAttribute("href");
    main.replaceChildren(...fresh.childNodes);
    main.dataset.digest = fresh.dataset.digest;
    main.querySelectorAll("details").forEach((one, at) => open[at] && (one.open = true));
    if (focus) [...main.querySelectorAll("a")].find((one) => one.getAttribute("href") === focus)?.focus();
    sortTables(main);
  };
  const follow = async () => {
    if (following || busy()) {
      later = true; // once it is done, or left
      return;
    }
    following = true;
    later = false;
    try {
      const answer = await fetch(location.href);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("main");
      if (fresh.dataset.digest !== main.dataset.digest && !busy()) {
        // Charts are drawn as a page is loaded.
        if (fresh.querySelector("#pictures") || document.getElementById("pictures")) location.reload();
        else put(fresh);
      }
      say(`Up to date at ${new Date().toLocaleTimeString()}`);
    } catch {
      say(OLD);
    } finally {
      following = false;
      if (later && !busy()) follow();
    }
  };
  main.addEventListener("focusout", () => setTimeout(() => later && follow(), 0));

  const listen = () => {
    if (stream || document.hidden) return;
    stream = new EventSource("/changes");
    stream.addEventListener("open", () => say("Follows the store"));
    stream.addEventListener("error", () => say(OLD));
    stream.addEventListener("change", (event) => {
      if (event.data === mark) return;
      mark = event.data;
      follow();
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
