// The site's search runs in a worker, which browsers refuse to a page that was opened from the disk. There the worker's
// script runs in a hidden frame, with the part of a worker's interface that the search uses. (The plugin `offline` of
// mkdocs-material would load such a script from another site.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      const load = (address) =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script");
          script.src = address;
          script.onload = resolve;
          script.onerror = reject;
          inside.document.head.append(script);
        });
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...addresses) =>
        addresses.reduce((before, address) => before.then(() => load(address)), Promise.resolve());
      load(url).then(() => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      });
    }

    postMessage(data) {
      if (this.waiting) {
        this.waiting.push(data);
      } else {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      }
    }

    terminate() {
      this.frame.remove();
    }
  };
}
