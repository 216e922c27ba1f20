// Harvests repositories with the library oai-pmh of Node, as oai_pmh_harvest.py does.
//
// Usage: node oai_pmh_harvest.js, with the library in NODE_PATH.

const readline = require('readline');

const { OaiPmh } = require('oai-pmh');

// The library reads a page of one record as no list, and fails. So it gets the record twice.
class Client extends OaiPmh {
    async request(options) {
        const response = await super.request(options);
        const records = response.body.match(/<record>[^]*?<\/record>/g) || [];
        if (records.length === 1) {
            response.body = response.body.replace(records[0], () => records[0] + records[0]);
        }
        return response;
    }
}

const harvest = async (url, since) => {
    const identify = await (await fetch(`${url}?verb=Identify`)).text();
    const date = identify.match(/<responseDate>(.*?)<\/responseDate>/)[1];
    const records = {};
    try {
        const options = { metadataPrefix: 'oai_dc', ...(since && { from: since }) };
        for await (const { header, metadata } of new Client(url).listRecords(options)) {
            const isDeleted = header.$ && header.$.status === 'deleted';
            const relations = isDeleted ? null : metadata['oai_dc:dc']['dc:relation'] || [];
            records[header.identifier] = relations && [].concat(relations).sort();
        }
    } catch (error) {
        if (error.code !== 'noRecordsMatch') {
            throw error;
        }
    }
    return { date, records };
};

(async () => {
    for await (const line of readline.createInterface({ input: process.stdin })) {
        const [url, since] = line.split(' ').filter(Boolean);
        process.stdout.write(`${JSON.stringify(await harvest(url, since))}\n`);
    }
})();
