-- +goose NO TRANSACTION
-- +goose Up
-- Several statements in one file, against the rule of one per file: COMMENT ON is idempotent and
-- depends on nothing, so a file that stopped half way is simply applied again. The same words for
-- both generations and the view.
COMMENT ON TABLE ledger_a.checkpoints IS 'How far each shard of the projection has come. Belongs to the rows of its generation: both move in one transaction.';
COMMENT ON COLUMN ledger_a.checkpoints.shard IS 'Shard number, from 0 to ledger_meta.shards - 1.';
COMMENT ON COLUMN ledger_a.checkpoints.seq IS 'The tables of this generation equal the fold of the stream up to here, for the jobs of this shard. 0: nothing folded yet.';
COMMENT ON COLUMN ledger_a.checkpoints.chain IS 'Hash chain over the stream up to and with seq: another or a rewound stream is recognised by it.';
COMMENT ON COLUMN ledger_a.checkpoints.chain_prev IS 'Hash chain before the entry at seq, so that this entry alone can be hashed again and compared. NULL: seq is 0.';
COMMENT ON COLUMN ledger_a.checkpoints.effects_seq IS 'Up to here the effects (starts and answers) are known to be done. Those of the entries after it up to seq are performed again on start and take-over.';
COMMENT ON COLUMN ledger_a.checkpoints.epoch IS 'active.epoch under which the writer works. A switch of generations raises it and fences every older writer.';
COMMENT ON COLUMN ledger_a.checkpoints.rules IS 'Version of the fold''s rules that holds at seq; 0 before the first rules.set.';
COMMENT ON COLUMN ledger_a.checkpoints.token IS 'Random token of the last writer, by which it recognises its own commit after an ambiguous answer. NULL: never written by a projector.';
COMMENT ON COLUMN ledger_a.checkpoints.updated_at IS 'When the checkpoint moved, by the writer''s clock. For people: nothing decides by it.';

COMMENT ON TABLE ledger_b.checkpoints IS 'How far each shard of the projection has come. Belongs to the rows of its generation: both move in one transaction.';
COMMENT ON COLUMN ledger_b.checkpoints.shard IS 'Shard number, from 0 to ledger_meta.shards - 1.';
COMMENT ON COLUMN ledger_b.checkpoints.seq IS 'The tables of this generation equal the fold of the stream up to here, for the jobs of this shard. 0: nothing folded yet.';
COMMENT ON COLUMN ledger_b.checkpoints.chain IS 'Hash chain over the stream up to and with seq: another or a rewound stream is recognised by it.';
COMMENT ON COLUMN ledger_b.checkpoints.chain_prev IS 'Hash chain before the entry at seq, so that this entry alone can be hashed again and compared. NULL: seq is 0.';
COMMENT ON COLUMN ledger_b.checkpoints.effects_seq IS 'Up to here the effects (starts and answers) are known to be done. Those of the entries after it up to seq are performed again on start and take-over.';
COMMENT ON COLUMN ledger_b.checkpoints.epoch IS 'active.epoch under which the writer works. A switch of generations raises it and fences every older writer.';
COMMENT ON COLUMN ledger_b.checkpoints.rules IS 'Version of the fold''s rules that holds at seq; 0 before the first rules.set.';
COMMENT ON COLUMN ledger_b.checkpoints.token IS 'Random token of the last writer, by which it recognises its own commit after an ambiguous answer. NULL: never written by a projector.';
COMMENT ON COLUMN ledger_b.checkpoints.updated_at IS 'When the checkpoint moved, by the writer''s clock. For people: nothing decides by it.';

COMMENT ON VIEW ledger.checkpoints IS 'How far each shard of the projection has come. Belongs to the rows of its generation: both move in one transaction.';
COMMENT ON COLUMN ledger.checkpoints.shard IS 'Shard number, from 0 to ledger_meta.shards - 1.';
COMMENT ON COLUMN ledger.checkpoints.seq IS 'The tables of this generation equal the fold of the stream up to here, for the jobs of this shard. 0: nothing folded yet.';
COMMENT ON COLUMN ledger.checkpoints.chain IS 'Hash chain over the stream up to and with seq: another or a rewound stream is recognised by it.';
COMMENT ON COLUMN ledger.checkpoints.chain_prev IS 'Hash chain before the entry at seq, so that this entry alone can be hashed again and compared. NULL: seq is 0.';
COMMENT ON COLUMN ledger.checkpoints.effects_seq IS 'Up to here the effects (starts and answers) are known to be done. Those of the entries after it up to seq are performed again on start and take-over.';
COMMENT ON COLUMN ledger.checkpoints.epoch IS 'active.epoch under which the writer works. A switch of generations raises it and fences every older writer.';
COMMENT ON COLUMN ledger.checkpoints.rules IS 'Version of the fold''s rules that holds at seq; 0 before the first rules.set.';
COMMENT ON COLUMN ledger.checkpoints.token IS 'Random token of the last writer, by which it recognises its own commit after an ambiguous answer. NULL: never written by a projector.';
COMMENT ON COLUMN ledger.checkpoints.updated_at IS 'When the checkpoint moved, by the writer''s clock. For people: nothing decides by it.';
