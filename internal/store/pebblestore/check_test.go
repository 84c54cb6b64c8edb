package pebblestore

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/codec"
	"github.com/idemd/idemd/internal/store/storetest"
)

// TestCheckReportsEveryKindOfDamage, each as one fault.
func TestCheckReportsEveryKindOfDamage(t *testing.T) {
	busy, done := storetest.At("busy"), storetest.At("done")
	stranger := reservation.Address{Tenant: "other", Namespace: "x", Key: "y"}
	for name, damage := range map[string]func(s *Store, doneRec *reservation.Record) error{
		"a record of garbage": func(s *Store, _ *reservation.Record) error {
			return s.db.Set(recordKey(done), []byte("garbage"), pebble.Sync)
		},
		"an impossible record": func(s *Store, rec *reservation.Record) error {
			impossible := *rec
			impossible.Fence = 0
			return s.db.Set(recordKey(done), codec.EncodeRecord(&impossible), pebble.Sync)
		},
		"a record under a malformed key": func(s *Store, rec *reservation.Record) error {
			return s.db.Set([]byte("rxyz"), codec.EncodeRecord(rec), pebble.Sync)
		},
		"an open entry without a record": func(s *Store, _ *reservation.Record) error {
			return s.db.Set(openKey(stranger), nil, pebble.Sync)
		},
		"an open entry of a finished record": func(s *Store, _ *reservation.Record) error {
			return s.db.Set(openKey(done), nil, pebble.Sync)
		},
		"no open entry": func(s *Store, _ *reservation.Record) error {
			return s.db.Delete(openKey(busy), pebble.Sync)
		},
		"a malformed open entry": func(s *Store, _ *reservation.Record) error {
			return s.db.Set([]byte("o"), nil, pebble.Sync)
		},
		"a wrong count": func(s *Store, _ *reservation.Record) error {
			return s.db.Set(metaKey(metaFinished), bigEndian(7), pebble.Sync)
		},
		"a meta entry of a strange length": func(s *Store, _ *reservation.Record) error {
			return s.db.Set(metaKey(metaClock), []byte("x"), pebble.Sync)
		},
		"a strange meta entry": func(s *Store, _ *reservation.Record) error {
			return s.db.Set(metaKey("strange"), nil, pebble.Sync)
		},
		"an entry of a strange kind": func(s *Store, _ *reservation.Record) error {
			return s.db.Set([]byte("z"), nil, pebble.Sync)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, rec := storeWith(t, busy, done)
			defer mustClose(t, s)
			mustBeWhole(t, s)
			if err := damage(s, rec); err != nil {
				t.Fatal(err)
			}
			report, err := s.Check(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if report.FaultCount != 1 {
				t.Errorf("%d faults, want 1: %+v", report.FaultCount, report.Faults)
			}
		})
	}
}

// TestCheckReportsAWrongExpiry: the record's entry is missing, and one that is not its
// own is there.
func TestCheckReportsAWrongExpiry(t *testing.T) {
	done := storetest.At("done")
	s, rec := storeWith(t, storetest.At("busy"), done)
	defer mustClose(t, s)
	batch := s.db.NewBatch()
	_ = batch.Delete(expiryKey(rec.ExpiresAt, done), nil)
	_ = batch.Set(expiryKey(rec.ExpiresAt+1, done), nil, nil)
	if err := batch.Commit(pebble.Sync); err != nil {
		t.Fatal(err)
	}
	report, err := s.Check(context.Background())
	if err != nil || report.FaultCount != 2 {
		t.Errorf("%+v, %v, want 2 faults", report, err)
	}
}

// storeWith makes a store with one record in progress and one that is done.
func storeWith(t *testing.T, busy, done reservation.Address) (*Store, *reservation.Record) {
	t.Helper()
	s := mustOpen(t, Options{Dir: "data", FS: vfs.NewMem(), Logger: quiet(t)})
	outcomes := s.Apply(context.Background(), []reservation.Command{
		storetest.Reserve(busy, 1), storetest.Reserve(done, 1), storetest.Complete(done, 1, "x"), storetest.Lookup(done),
	})
	return s, outcomes[3].(*reservation.Found).Record
}

// TestCheckOfALiveStoreFindsNothing: it sees one moment, not parts of several.
func TestCheckOfALiveStoreFindsNothing(t *testing.T) {
	s := mustOpen(t, Options{Dir: "data", FS: vfs.NewMem(), Logger: quiet(t)})
	l := &load{store: s, journal: newJournal(), seed: newSeed(t), refused: func(err *reservation.Error) { t.Error(err) }}
	ended := make(chan struct{})
	go func() {
		l.run(4)
		close(ended)
	}()
	for range 20 {
		l.journal.waitFor(20)
		mustBeWhole(t, s)
	}
	l.journal.stop()
	<-ended
	mustClose(t, s)
}
