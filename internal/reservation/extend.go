package reservation

import "bytes"

func (c *Extend) decide(now Time, rec, _ *Record) (*Record, Outcome) {
	switch {
	case rec == nil:
		return nil, notFound()
	case c.Token.Digest() != rec.Token:
		return nil, staleToken()
	case rec.State != Processing:
		return nil, alreadyFinished(rec)
	case now >= rec.LeaseCapAt:
		return nil, Errorf(LeaseCapReached, "lease",
			"the lease has reached its hard cap and can't be extended any more; complete or fail the attempt")
	}
	wanted := max(rec.LeaseExpiresAt, now.Add(c.Lease))
	end := min(wanted, rec.LeaseCapAt)

	next := rec
	if checkpointed := c.storesCheckpoint(rec); checkpointed || end != rec.LeaseExpiresAt {
		next = rec.change()
		next.LeaseExpiresAt = end
		if checkpointed {
			next.Checkpoint, next.CheckpointSequence = c.Checkpoint, c.CheckpointSequence
		}
	}
	return next, &Extended{LeaseExpiresAt: end, LeaseRemaining: end.Sub(now), Clamped: wanted > end}
}

// storesCheckpoint tells whether the checkpoint changes the record: one with a lower
// sequence than this attempt's last is late and ignored, an empty one clears only
// with a higher sequence, and the same one again changes nothing.
func (c *Extend) storesCheckpoint(rec *Record) bool {
	if len(c.Checkpoint) == 0 {
		return c.CheckpointSequence > rec.CheckpointSequence
	}
	if c.CheckpointSequence == rec.CheckpointSequence {
		return !bytes.Equal(c.Checkpoint, rec.Checkpoint)
	}
	return c.CheckpointSequence > rec.CheckpointSequence
}
