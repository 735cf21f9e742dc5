// An inbox on MongoDB, as services in Node and Java have it (run with `mongosh erp collections.js`):
//
//     try {
//       await db.collection("inbox_event").insertOne({ _id: event.id, eventType: event.type, receivedAt: new Date() });
//     } catch (e) {
//       if (e.code === 11000) return;   // seen before
//       throw e;
//     }
//     await apply(event);               // a crash before this line, and the event is lost
//
// `_id` is unique by itself. Another field would need an index of its own:
// db.inbox_event.createIndex({ eventId: 1 }, { unique: true })
db.createCollection("inbox_event");
db.createCollection("stock");
