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
  // A store may change all the time, and be on the machine that is measured: only a load that goes on is followed at once.
  const REST = 2000;
  let followed = -REST;
  let resting = 0;

  const say = (text) => {
    if (live.textContent !== text) live.textContent = text;
  };
  // What somebody has begun to fill in or to tick stays as it is.
  const busy = () =>
    [...main.querySelectorAll("input, select, textarea")].some((field) => {
      if (field === document.activeElement) return true;
      if (field.type === "range") return false;
      if (field.type === "checkbox") return field.checked !== field.defaultChecked;
      return field.tagName !== "SELECT" && field.type !== "hidden" && field.value !== field.defaultValue;
    });
  const put = (fresh) => {
    const open = [...main.querySelectorAll("details")].map((one) => one.open);
    const focus = main.contains(document.activeElement) && document.activeElement.getAttribute("href");
    main.replaceChildren(...fresh.childNodes);
    Object.assign(main.dataset, { digest: fresh.dataset.digest, live: fresh.dataset.live });
    main.querySelectorAll("details").forEach((one, at) => open[at] && (one.open = true));
    if (focus) [...main.querySelectorAll("a")].find((one) => one.getAttribute("href") === focus)?.focus();
    sortTables(main);
    addCopyButtons(main);
    addSliders();
    addViews();
    tellTimes();
  };
  const follow = async () => {
    if (following || busy()) {
      later = true; // once it is done, or left
      return;
    }
    const rest = main.dataset.live ? 0 : followed + REST - performance.now();
    if (rest > 0) {
      resting ||= setTimeout(() => {
        resting = 0;
        follow();
      }, rest);
      return;
    }
    following = true;
    followed = performance.now();
    later = false;
    try {
      const answer = await fetch(location.href, { headers: { "x-follows": "1" } });
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
  // A number gets a slider, which moves by equal ratios; arrow keys move it by a twentieth.
  const addSliders = () => {
    for (const number of main.querySelectorAll("input[data-low]:not(.slides)")) {
      const low = Math.log(number.dataset.low);
      const high = Math.log(number.dataset.high);
      const slider = document.createElement("input");
      const place = () => {
        slider.value = number.value > 0 ? ((Math.log(number.value) - low) / (high - low)) * 240 : 240;
        slider.setAttribute("aria-valuetext", number.value || "any");
      };
      slider.type = "range";
      slider.max = 240;
      slider.setAttribute("aria-label", number.labels[0].textContent);
      number.classList.add("slides");
      number.after(slider);
      place();
      number.addEventListener("input", place);
      slider.addEventListener("input", () => {
        number.value = Number(Math.exp(low + ((high - low) * slider.value) / 240).toPrecision(2));
        place();
        number.dispatchEvent(new Event("input", { bubbles: true }));
      });
    }
  };
  // What stands below a live form is fetched again while its fields change, and the address with it.
  let waiting = 0;
  let asked = 0;
  const ask = async (form) => {
    const words = [...new FormData(form)].filter(([, value]) => value !== "");
    const address = `${form.action}?${new URLSearchParams(words)}`;
    const number = ++asked;
    const answer = await fetch(address).catch(() => null);
    if (!answer) return say(OLD);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById(form.id);
    if (number !== asked || !fresh) return;
    while (form.nextSibling) form.nextSibling.remove();
    while (fresh.nextSibling) main.append(fresh.nextSibling);
    main.querySelector("h1").textContent = page.querySelector("h1").textContent;
    document.title = page.title;
    main.dataset.digest = page.getElementById("main").dataset.digest;
    history.replaceState(null, "", address);
    sortTables(main);
    addCopyButtons(main);
    say(main.querySelector("h1").textContent);
  };
  main.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-live]");
    if (!form) return;
    clearTimeout(waiting);
    waiting = setTimeout(() => ask(form), 250);
  });
  addSliders();

  // Views of a list: its filters and columns by a name, which this browser keeps.
  const views = (() => {
    const key = `views ${location.pathname}`;
    const read = () => JSON.parse(localStorage.getItem(key) ?? "{}");
    const make = (name, inside, ...children) => {
      const element = document.createElement(name);
      element.append(...children);
      inside?.append(element);
      return element;
    };
    return (form) => {
      const box = make("details");
      const write = (change) => {
        const found = read();
        change(found);
        localStorage.setItem(key, JSON.stringify(found));
        show();
      };
      const show = () => {
        const found = Object.entries(read());
        box.replaceChildren(make("summary", null, `Saved views (${found.length})`));
        const list = make("ul", box);
        for (const [name, query] of found) {
          const item = make("li", list);
          make("a", item, name).href = `${location.pathname}?${query}`;
          const remove = make("button", item, "Remove");
          remove.type = "button";
          remove.setAttribute("aria-label", `Remove the view ${name}`);
          remove.addEventListener("click", () => write((all) => delete all[name]));
        }
        const save = make("form", box);
        const label = make("label", save, "Name of this view ");
        const name = make("input", label);
        name.required = true;
        name.maxLength = 60;
        make("button", save, "Save");
        save.addEventListener("submit", (event) => {
          event.preventDefault();
          write((all) => (all[name.value] = location.search.slice(1)));
          box.querySelector("summary").focus();
        });
      };
      box.className = "views";
      show();
      (form.closest("details") ?? form).after(box);
    };
  })();
  const addViews = () => {
    const search = main.querySelector("form#search");
    if (search && !main.querySelector(".views")) views(search);
  };
  addViews();

  // Times are told as how long ago they were; the exact one is the hint, and what tables are sorted by.
  const UNITS = [["day", 86400], ["h", 3600], ["min", 60]];
  const ago = (seconds) => {
    const [unit, size] = UNITS.find(([, least]) => seconds >= least) ?? ["", 1];
    const number = Math.floor(seconds / size);
    return unit ? `${number} ${unit}${unit === "day" && number > 1 ? "s" : ""} ago` : "just now";
  };
  const tellTimes = () => {
    for (const time of main.querySelectorAll("time")) {
      const seconds = (Date.now() - new Date(time.dateTime)) / 1000;
      time.title ||= `${time.textContent} UTC`;
      if (seconds < 400 * 86400) time.textContent = ago(seconds);
    }
  };
  tellTimes();
  setInterval(tellTimes, 30_000);

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
