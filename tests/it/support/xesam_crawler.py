"""Xesam crawler that shows every frame: it uses only jeepney's parser, so the order is the order on the wire.

Usage: xesam_crawler.py ADDRESS NAME OPTIONS, with a JSON object of options. Each line of standard output is an event as
JSON. Each line of standard input is a command:

  install           call ListRecords
  install PATH      call ListRecords for another object
  hold              do not answer calls any more
  answer            answer the calls that wait, and all later ones
  fail              answer with an error from now on
  text              answer with a text from now on
  invalidated       emit Invalidated
  flood             emit Invalidated, and leave without waiting
  flash COUNT       call ListRecords for so many objects, and emit Invalidated from each without waiting
  wrong             call ListRecords with wrong types
"""

import json
import select
import sys

from jeepney import (DBusAddress, MessageType, new_error, new_method_call, new_method_return, new_signal)
from jeepney.io.blocking import open_dbus_connection

CRAWLER = "org.freedesktop.xesam.pmh.Crawler"
address, name, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
path = options.get("path", "/crawler")
target = DBusAddress(options.get("target", "/org/freedesktop/xesam/pmh/Target"), bus_name=name,
                     interface="org.freedesktop.xesam.pmh.Target")
connection = open_dbus_connection(bus=address)
mode, waiting, calls = "hold" if options.get("hold") else "answer", [], {}


def show(event, **facts):
    print(json.dumps({"event": event, **facts}), flush=True)


def answer(call):
    if mode == "fail":
        connection.send(new_error(call, "org.example.Error.Broken", "s", ("it is broken",)))
    elif mode == "text":
        connection.send(new_method_return(call, "s", ("a text",)))
    else:
        connection.send(new_method_return(call))


def install(at):
    arguments = (options.get("mtime", 0), options.get("fields", []), options.get("content", []),
                 options.get("source", []), options.get("batch", 0), at)
    call = new_method_call(target, "ListRecords", "tasasasuo", arguments)
    serial = next(connection.outgoing_serial)
    calls[serial] = at
    connection.send(call, serial=serial)


def command(line):
    global mode
    word, _, rest = line.partition(" ")
    if word == "install":
        install(rest or path)
    elif word in ("hold", "fail", "text"):
        mode = word
    elif word == "answer":
        mode = word
        while waiting:
            answer(waiting.pop(0))
    elif word in ("invalidated", "flood"):
        here = DBusAddress(rest or path, interface=CRAWLER)
        if word == "flood":
            install(rest or path)
        connection.send(new_signal(here, "Invalidated", "s", ("no more, please",)))
        if word == "flood":
            sys.exit()
    elif word == "flash":
        for number in range(int(rest)):
            install(f"{path}/{number}")
            connection.send(new_signal(DBusAddress(f"{path}/{number}", interface=CRAWLER), "Invalidated", "s", ("",)))
    elif word == "wrong":
        serial = next(connection.outgoing_serial)
        calls[serial] = path
        connection.send(new_method_call(target, "ListRecords", "s", ("everything",)), serial=serial)


def message(received):
    fields = {field.name: value for field, value in received.header.fields.items()}
    kind = received.header.message_type
    if kind in (MessageType.method_return, MessageType.error) and fields.get("reply_serial") in calls:
        at = calls.pop(fields["reply_serial"])
        if kind == MessageType.error:
            show("error", path=at, name=fields["error_name"], text=(received.body or [""])[0])
        else:
            show("installed", path=at, incremental=received.body[0])
    elif kind == MessageType.method_call and fields.get("path", "").startswith(path):
        member, facts = fields["member"], {}
        if member == "UpdateRecords":
            records = received.body[0]
            if options.get("brief"):
                records = [(*record[:5], []) for record in records]
            facts = {"signature": fields["signature"], "records": records}
        elif member == "Invalidate":
            facts = {"text": received.body[0]}
        show(member, path=fields["path"], interface=fields["interface"], sender=fields["sender"],
             waiting=len(waiting), **facts)
        if mode == "hold":
            waiting.append(received)
        else:
            answer(received)
        if member == "Invalidate":
            here = DBusAddress(fields["path"], interface=CRAWLER)
            connection.send(new_signal(here, "Invalidated", "s", (received.body[0],)))
    elif kind == MessageType.method_call:
        connection.send(new_error(received, "org.freedesktop.DBus.Error.UnknownObject", "s", ("no such object",)))


def run():
    # `hold` may stop the answers before the first call arrives, so commands are read first.
    pending = b""
    while True:
        ready, _, _ = select.select([connection.sock, sys.stdin], [], [])
        if sys.stdin in ready:
            read = sys.stdin.buffer.read1()
            if not read:
                return
            *lines, pending = (pending + read).split(b"\n")
            for line in lines:
                command(line.decode())
        if connection.sock in ready:
            data = connection.sock.recv(1 << 16)
            if not data:
                raise ConnectionResetError
            connection.parser.add_data(data)
            while (received := connection.parser.get_next_message()) is not None:
                message(received)


show("connected", owner=connection.unique_name)
try:
    if options.get("install", True):
        install(path)
    run()
except ConnectionError:
    # The bus may also end in the middle of an answer.
    show("disconnected")
