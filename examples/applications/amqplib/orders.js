// Send orders through a quorum queue, or take them from it: `node orders.js producer` or `worker`.

const amqplib = require('amqplib');
const { randomUUID } = require('node:crypto');
const { setTimeout: pause } = require('node:timers/promises');

const QUEUE = process.env.QUEUE || 'orders';
const RATE_PER_S = Number(process.env.RATE_PER_S || 50);
const URL = process.env.AMQP_URL || 'amqp://guest:guest@127.0.0.1:5672/%2F';
const PREFETCH = 20;
const GRACE_MS = 5000;

let stopping = false;
let confirmed = 0;
let done = 0;
let channel;

async function openChannel(connection, create) {
  const opened = await connection[create]();
  opened.on('error', () => {}); // the connection reports it
  await opened.assertQueue(QUEUE, { durable: true, arguments: { 'x-queue-type': 'quorum' } });
  return opened;
}

function send(order) {
  return new Promise((resolve, reject) => {
    const properties = { contentType: 'application/json', persistent: true, messageId: order.order };
    channel.sendToQueue(QUEUE, Buffer.from(JSON.stringify(order)), properties, (error) =>
      error ? reject(error) : resolve(),
    );
  });
}

// Called by amqplib after each connect, the first one too: it recovers no channel by itself.
async function setUpProducer(connection) {
  channel = await openChannel(connection, 'createConfirmChannel');
}

async function produce() {
  while (!stopping) {
    const order = { order: randomUUID(), number: confirmed + 1 };
    for (;;) {
      try {
        await send(order);
        break;
      } catch {
        if (stopping) return;
        await pause(1000); // not confirmed: send it again
      }
    }
    confirmed += 1;
    await pause(1000 / RATE_PER_S);
  }
}

async function setUpWorker(connection) {
  channel = await openChannel(connection, 'createChannel');
  const mine = channel;
  await mine.prefetch(PREFETCH);
  await mine.consume(QUEUE, async (message) => {
    if (message === null) return connection.close(); // cancelled by the broker: connect and set up again
    if (!JSON.parse(message.content).order) throw new Error('no order');
    await pause(5);
    try {
      mine.ack(message);
      done += 1;
    } catch {
      // the channel is gone, and the broker sends the order again
    }
  });
}

async function main(role) {
  const setup = { producer: setUpProducer, worker: setUpWorker }[role];
  const connection = await amqplib.connect(URL, { recovery: { setup, waitForConnect: false } });
  connection.on('connect', () => console.log('connected'));
  connection.on('disconnect', (error) => stopping || console.log(`connection lost: ${error.message}`));
  connection.on('error', () => {}); // followed by 'disconnect'
  const asked = new Promise((resolve) => process.on('SIGTERM', resolve)).then(() => (stopping = true));
  await Promise.race([connection.waitForConnect(), asked]);
  const running = role === 'producer' && !stopping ? produce() : asked;
  await asked;
  await Promise.race([running, pause(GRACE_MS)]);
  await Promise.race([connection.close(), pause(GRACE_MS / 2)]);
  console.log(`ended: ${role === 'producer' ? `${confirmed} confirmed` : `${done} done`}`);
  process.exit(0);
}

main(process.argv[2]);
