"use strict";
// A command is copied by a button beside it, where the browser lets a page write into the clipboard.
const addCopyButtons = (root) => {
  if (!navigator.clipboard) return;
  root.querySelectorAll("pre.command:not(.copies)").forEach((command) => {
    const button = document.createElement("button");
    const text = command.textContent.trim();
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy: ${text}`);
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    command.classList.add("copies");
    command.append(button);
  });
};
addCopyButtons(document);
