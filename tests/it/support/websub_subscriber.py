"""A WebSub subscriber with Flask-WebSub: finds the hub of a feed, subscribes with a secret, and prints what comes.

It reads commands from standard input, a line each: renew, unsubscribe."""

import re
import sys
import tempfile
import threading

from flask import Flask
from flask_websub.subscriber import SQLite3SubscriberStorage, SQLite3TempSubscriberStorage, Subscriber, discover
from werkzeug.serving import make_server


def say(*words):
    print(*words, flush=True)


folder = tempfile.TemporaryDirectory()
subscriber = Subscriber(
    SQLite3SubscriberStorage(f"{folder.name}/kept"), SQLite3TempSubscriberStorage(f"{folder.name}/asked")
)
subscriber.add_success_handler(lambda topic, callback, mode: say("verified", mode))
subscriber.add_error_handler(lambda topic, callback, reason: say("denied", reason))


# It is called only if the signature fits.
@subscriber.add_listener
def entries(topic, callback, body):
    for number in reversed(re.findall(rb' seq="(\d+)"', body)):
        say("told", number.decode())
    # A notification of ResourceSync.
    for loc in re.findall(rb"<loc>([^<]*)</loc>", body):
        say("told", loc.decode())


app = Flask(__name__)
app.register_blueprint(subscriber.build_blueprint("/callbacks"))
server = make_server("127.0.0.1", 0, app, threaded=True)
app.config["SERVER_NAME"] = f"127.0.0.1:{server.port}"
threading.Thread(target=server.serve_forever, daemon=True).start()

with app.app_context():
    found = discover(sys.argv[1])
    say("found", found["hub_url"], found["topic_url"])
    callback = subscriber.subscribe(**found)
    for line in sys.stdin:
        {"renew": subscriber.renew, "unsubscribe": subscriber.unsubscribe}[line.strip()](callback)
