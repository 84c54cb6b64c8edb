package idem

import (
	"bytes"
	"context"
)

// checkpoint stores progress under the next sequence number: of several at once the
// last one begun holds.
func (k *keeper) checkpoint(ctx context.Context, data []byte) error {
	data = bytes.Clone(data)
	k.mu.Lock()
	over := k.over
	k.sequence++
	sequence := k.sequence
	k.mu.Unlock()
	if over {
		return ErrLeaseLost
	}
	err := k.extend(ctx, forever, data, sequence)
	if err == nil {
		k.keep(data, sequence)
		return nil
	}
	if err.leaseLost() {
		k.lose(err)
	}
	return err
}

func (k *keeper) keep(data []byte, sequence uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if sequence > k.stored {
		k.stored, k.progress = sequence, data
	}
}

func (k *keeper) lastCheckpoint() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.progress
}
