// Xesam crawler over the library dbus-next of Node. It prints events as xesam_crawler.py does.
//
// Usage: node xesam_crawler.js ADDRESS NAME MTIME, with the library in NODE_PATH.

const dbus = require('dbus-next');

const [address, name, mtime] = process.argv.slice(2);
const show = (event, facts = {}) => {
    const plain = (_, value) => (typeof value === 'bigint' ? Number(value) : value);
    process.stdout.write(`${JSON.stringify({ event, ...facts }, plain)}\n`);
};

class Crawler extends dbus.interface.Interface {
    UpdateRecords(records) {
        show('UpdateRecords', { records, signature: 'a(ssssta(ss))', waiting: 0 });
    }

    Invalidate(text) {
        show('Invalidate', { text });
    }

    CleanUp() {
        show('CleanUp');
    }
}

Crawler.configureMembers({
    methods: {
        UpdateRecords: { inSignature: 'a(ssssta(ss))', outSignature: '' },
        Invalidate: { inSignature: 's', outSignature: '' },
        CleanUp: { inSignature: '', outSignature: '' },
    },
});

(async () => {
    const bus = dbus.sessionBus({ busAddress: address });
    bus.on('connect', () => show('connected', { owner: bus.name }));
    bus.export('/crawler', new Crawler('org.freedesktop.xesam.pmh.Crawler'));
    const object = await bus.getProxyObject(name, '/org/freedesktop/xesam/pmh/Target');
    const target = object.getInterface('org.freedesktop.xesam.pmh.Target');
    const incremental = await target.ListRecords(BigInt(mtime), [], [], [], 10, '/crawler');
    show('installed', { incremental });
})();
