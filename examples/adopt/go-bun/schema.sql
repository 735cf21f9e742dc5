-- A consumer in Go with bun, on SQLite:
--
--     type InboxMessage struct {
--         bun.BaseModel `bun:"table:inventory_inbox"`
--         MessageID     string    `bun:"message_id,pk"`
--         ProcessedAt   time.Time `bun:"processed_at,notnull,default:current_timestamp"`
--     }
--
--     db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
--         result, err := tx.NewInsert().Model(&message).On("CONFLICT DO NOTHING").Exec(ctx)
--         …
--     })
CREATE TABLE inventory_inbox (
    message_id   TEXT      NOT NULL PRIMARY KEY,
    processed_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, on_hand BIGINT NOT NULL);
