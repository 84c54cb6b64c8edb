package pebblestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// writes collects what one commit changes.
type writes struct {
	batch *pebble.Batch
	err   error
}

func (w *writes) note(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *writes) set(key, value []byte) { w.note(w.batch.Set(key, value, nil)) }

func (w *writes) delete(key []byte) { w.note(w.batch.Delete(key, nil)) }

// deleteIndex deletes an index entry. Each was set exactly once since it was last
// deleted, which is what SingleDelete asks for: the two vanish as soon as they meet,
// mostly in memory, and leave nothing that a scan of the index must step over.
func (w *writes) deleteIndex(key []byte) { w.note(w.batch.SingleDelete(key, nil)) }

// moveBody moves an entry of the index of bodies; nil = there is none. Few records have
// one, and a program from before there was that index may have left some behind: they are
// not deleted as the others are.
func (w *writes) moveBody(from, to []byte) {
	if bytes.Equal(from, to) {
		return
	}
	if from != nil {
		w.delete(from)
	}
	if to != nil {
		w.set(to, nil)
	}
}

func (w *writes) setMeta(name string, value uint64) {
	w.set(metaKey(name), bigEndian(value))
}

// readMeta reads a meta entry, 0 if there is none.
func readMeta(from pebble.Reader, name string) (uint64, error) {
	value, closer, err := from.Get(metaKey(name))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer closer.Close()
	if len(value) != 8 {
		return 0, fmt.Errorf("meta entry %q is damaged: restore a backup", name)
	}
	return binary.BigEndian.Uint64(value), nil
}

func bigEndian(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }
