// Reads the statistics once a second: from the event stream, or by asking where that is refused.
//
// The server ends each stream after some seconds, and the browser connects again at once. Only
// seconds without any data count as a lost connection.

const SILENCE = 3500; // ms without data until the connection counts as lost
const HOPELESS = 15000; // ms without data until an open stream is given up
const LONGEST_PAUSE = 10000; // ms between two attempts

export class Connection {
  constructor(onFrame, onState) {
    this.onFrame = onFrame;
    this.onState = onState;
    this.source = null;
    this.heard = 0;
    this.opened = 0;
    this.pause = 1000;
    this.open();
    setInterval(() => this.watch(), 1000);
    document.addEventListener("visibilitychange", () => this.watch());
  }

  open() {
    this.source?.close();
    this.opened = Date.now();
    this.source = new EventSource("events");
    this.source.onmessage = (event) => {
      this.pause = 1000;
      this.receive(JSON.parse(event.data), "live");
    };
    this.source.onerror = () => this.watch();
  }

  receive(frame, state) {
    this.heard = Date.now();
    this.onState(state);
    this.onFrame(frame);
  }

  watch() {
    const now = Date.now();
    const silent = now - Math.max(this.heard, this.opened);
    if (this.source.readyState === EventSource.CLOSED) {
      if (now - this.opened < this.pause) return; // the browser does not try again by itself
      this.pause = Math.min(LONGEST_PAUSE, 2 * this.pause);
      this.ask();
      this.open();
    } else if (silent > HOPELESS) {
      this.open();
    }
    if (this.heard && now - this.heard > SILENCE) this.onState("lost", this.heard);
  }

  async ask() {
    try {
      const answer = await fetch("stats", { signal: AbortSignal.timeout(3000), cache: "no-store" });
      if (answer.ok && this.source.readyState !== EventSource.OPEN) {
        this.receive(await answer.json(), "polling");
        this.pause = 2000;
      }
    } catch {
      if (!this.heard) this.onState("lost");
    }
  }
}
