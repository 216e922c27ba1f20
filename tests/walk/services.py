"""Servers that pages assume, on their usual ports in the network of the page."""

import os
import signal
import subprocess
import time
from pathlib import Path

from terminal import WalkError, is_open, is_running

RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"
ACTIVEMQ = "/usr/share/activemq"

# Seconds in which a server must start, also beside other work.
PATIENCE = 90


class Service:
    """A server that the page does not start itself."""

    def __init__(self, command, folder, environment, is_ready):
        self.log = folder / "service.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)
        try:
            self.wait_until(is_ready)
        except BaseException: # Ctrl-C, too.
            self.close()
            raise

    def wait_until(self, is_ready):
        until = time.monotonic() + PATIENCE
        while not is_ready():
            if self.process.poll() is not None or time.monotonic() > until:
                output = self.log.read_text(errors="replace")[-2000:]
                raise WalkError(f"{self.process.args[-1]} does not start:\n{output}")
            time.sleep(0.1)

    def close(self):
        # Their data are removed afterwards.
        while is_running(self.process.pid):
            os.killpg(self.process.pid, signal.SIGKILL)
            time.sleep(0.02)
        self.process.wait()


def rabbitmq(folder, environment):
    """Starts RabbitMQ with its default user, which is `guest`, and an epmd of its own in the same group of processes."""
    (folder / "rabbitmq.conf").write_text("listeners.tcp.1 = 127.0.0.1:5672\nlog.console = true\n")
    (folder / "plugins").write_text("[].\n")
    (folder / "environment").touch()
    own = {"HOME": str(folder), "LANG": "C.UTF-8", "ERL_EPMD_PORT": "24369", "RABBITMQ_NODENAME": "walk@localhost",
           "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia", "RABBITMQ_LOG_BASE": f"{folder}/log",
           "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins", "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
           "RABBITMQ_CONF_ENV_FILE": f"{folder}/environment", "RUNNING_UNDER_SYSTEMD": "true"}
    # Otherwise RabbitMQ starts an epmd that outlives it.
    command = ["sh", "-c", f"epmd & until epmd -names; do sleep 0.1; done; exec {RABBITMQ}"]
    return Service(command, folder, environment | own, lambda: is_open(5672)), {}


def activemq(folder, environment):
    """Starts ActiveMQ with STOMP and nothing else."""
    (folder / "activemq.xml").write_text(f"""
<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:schemaLocation="http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
 http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
<broker xmlns="http://activemq.apache.org/schema/core" dataDirectory="{folder}/data" useJmx="false">
<transportConnectors><transportConnector name="stomp" uri="stomp://127.0.0.1:61613"/></transportConnectors>
</broker></beans>
""")
    command = ["java", "-Xmx512m", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={folder}", f"-Dactivemq.home={ACTIVEMQ}",
               f"-Dactivemq.base={folder}", f"-Dactivemq.conf={folder}", f"-Dactivemq.data={folder}/data", "-jar",
               f"{ACTIVEMQ}/bin/activemq.jar", "start", f"xbean:file:{folder}/activemq.xml"]
    return Service(command, folder, environment, lambda: is_open(61613)), {}


def bus(folder, environment):
    """Starts the message bus of a session."""
    socket = folder / "bus"
    command = ["dbus-daemon", "--session", "--nofork", f"--address=unix:path={socket}"]
    service = Service(command, folder, environment, socket.exists)
    return service, {"DBUS_SESSION_BUS_ADDRESS": f"unix:path={socket}"}


def start(name, folder, environment):
    """Starts a service, and returns it with the variables that it adds to the environment of the reader."""
    folder = Path(folder) / name
    folder.mkdir()
    return {"rabbitmq": rabbitmq, "activemq": activemq, "bus": bus}[name](folder, environment)
