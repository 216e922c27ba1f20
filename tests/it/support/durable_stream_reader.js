// Follows a stream of the protocol Durable Streams with the library of npm, and prints the numbers of the changes of each batch.
//
// Arguments: URL, offset, and the way of following: true, long-poll or sse. Prints "gone" if the offset is not in the journal
// any more. The library repeats failed requests itself.
const { stream } = require("@durable-streams/client");

const [url, offset, live] = process.argv.slice(2);
const follow = async () => {
  try {
    const response = await stream({ url, offset, live: live === "true" ? true : live });
    response.subscribeJson(({ items }) => {
      if (items.length) console.log(JSON.stringify(items.map(({ seq }) => seq)));
    });
    await response.closed;
  } catch (error) {
    console.log(error.status === 410 ? "gone" : `failed: ${error}`);
  }
};
follow();
