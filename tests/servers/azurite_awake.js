// Loaded into Azurite before its own program: no sweep of its memory while tests run.
//
// Ten minutes after its start it looks at all that it has ever held, and answers nobody meanwhile:
// for twenty seconds and more after these tests. The interval is a constant of its own, and no option.
const path = require("path");

const constants = require(path.join(path.dirname(process.argv[1]), "utils/constants"));
if (typeof constants.DEFAULT_GC_INTERVAL_MS !== "number") {
  throw new Error("Azurite has no DEFAULT_GC_INTERVAL_MS any more: look how it sweeps its memory now");
}
constants.DEFAULT_GC_INTERVAL_MS = 24 * 60 * 60 * 1000;
