// The command line of npm ldes-client, which is an ES module beside the library: node ldes_client.js URL OPTIONS
const path = require("path");
const { pathToFileURL } = require("url");

const cli = path.join(path.dirname(require.resolve("ldes-client")), "../bin/cli.js");
import(pathToFileURL(cli)).catch((error) => {
  console.error(error);
  process.exit(1);
});
