package pgstore

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/idemd/idemd/internal/pgtest"
	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// A page of the disk that the database can't read belongs to one record: it is named
// and kept, and hides no other.
func TestARowThatTheDatabaseCanNotReadHidesNoOther(t *testing.T) {
	server := pgtest.Start(t)
	database := server.Database(t, "")
	s := openStore(t, Options{DSN: server.DSN(database), Migrate: true})
	damagedKey := storetest.At("damaged")
	complete := storetest.Complete(damagedKey, 1, "")
	complete.Result.Body = make([]byte, 60<<10)
	for i := range complete.Result.Body {
		complete.Result.Body[i] = byte(rand.Uint32())
	}
	s.Apply(t.Context(), []reservation.Command{storetest.Reserve(damagedKey, 1)})
	s.Apply(t.Context(), []reservation.Command{complete})
	spoilResults(t, server, database)

	commands := []reservation.Command{storetest.Reserve(damagedKey, 2)}
	for i := range 40 {
		commands = append(commands, storetest.Reserve(storetest.At("fresh-"+strconv.Itoa(i)), i), storetest.Lookup(storetest.At("none")))
	}
	for i, outcome := range s.Apply(t.Context(), commands) {
		switch o := outcome.(type) {
		case *reservation.Owned:
		case *reservation.Error:
			if i == 0 && o.Reason != reservation.RecordUnreadable || i > 0 && o.Reason != reservation.NotFound {
				t.Errorf("command %d is refused with %v", i, o)
			}
		default:
			t.Errorf("command %d is answered %T", i, outcome)
		}
	}
	// Nor from those who wait, or read.
	snapshot, err := s.Get(t.Context(), store.Want(storetest.At("fresh-1"), damagedKey, storetest.At("none"), storetest.At("fresh-2")))
	if err != nil || len(snapshot.Found) != 4 || snapshot.Now == 0 {
		t.Fatalf("Get: %+v %v", snapshot, err)
	}
	for i, found := range snapshot.Found {
		if found.Index != i || found.Unreadable != (i == 1) || (found.Record == nil) != (i == 1 || i == 2) {
			t.Errorf("Get shows %+v at place %d", found, i)
		}
	}
	report, err := s.Check(t.Context())
	if err != nil || report.Records != 41 || report.FaultCount != 1 || report.Faults[0].Address != damagedKey {
		t.Errorf("Check reports %+v (%v)", report, err)
	}
}

func TestARowThatTheDatabaseCanNotReadStopsNoSweep(t *testing.T) {
	server := pgtest.Start(t)
	database := server.Database(t, "")
	s := openStore(t, Options{DSN: server.DSN(database), Migrate: true})
	short := storetest.RetentionOf(reservation.MinRetention)
	finish := func(key string, size int) {
		complete := storetest.Complete(storetest.At(key), 1, "")
		complete.Result.Body = make([]byte, size)
		for i := range complete.Result.Body {
			complete.Result.Body[i] = byte(rand.Uint32())
		}
		s.Apply(t.Context(), []reservation.Command{storetest.Reserve(storetest.At(key), 1, short)})
		s.Apply(t.Context(), []reservation.Command{complete})
	}
	for i := range 5 {
		finish("before-"+strconv.Itoa(i), 10)
	}
	finish("damaged", 60<<10)
	for i := range 5 {
		finish("after-"+strconv.Itoa(i), 10)
	}
	spoilResults(t, server, database)
	left := func() string {
		return must(t, server, database, "SELECT string_agg(key, ' ') FROM idemd.reservations")[0][0]
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for left() != "damaged" && ctx.Err() == nil {
		_, _ = s.Sweep(ctx, 500) // connections from before the restart fail once each
	}
	if swept, err := s.Sweep(ctx, 500); err != nil || swept.Deleted != 0 || left() != "damaged" {
		t.Errorf("another sweep: %+v %v", swept, err)
	}
}

// spoilResults overwrites the file that holds the large results, as a failing disk may.
func spoilResults(t *testing.T, server *pgtest.Server, database string) {
	t.Helper()
	where := must(t, server, database, `CHECKPOINT; SELECT current_setting('data_directory'), pg_relation_filepath(reltoastrelid)
		FROM pg_class WHERE oid = 'idemd.reservations'::regclass`)
	path := filepath.Join(where[0][0], where[0][1])
	server.Stop()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	garbage := make([]byte, 24)
	for i := range garbage {
		garbage[i] = 0xff
	}
	if _, err := file.WriteAt(garbage, 0); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
}
