package pebblestore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// journal is what a store has told: of each address the latest record. After a crash
// the store must hold it, or a later one.
type journal struct {
	mu      sync.Mutex
	grown   *sync.Cond
	told    map[reservation.Address]*reservation.Record
	count   int
	stopped bool
}

func newJournal() *journal {
	j := &journal{told: make(map[reservation.Address]*reservation.Record)}
	j.grown = sync.NewCond(&j.mu)
	return j
}

// note takes down a record that was told. It returns false when the test is over.
func (j *journal) note(address reservation.Address, rec *reservation.Record) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if before := j.told[address]; before == nil || compareAge(before, rec) <= 0 {
		j.told[address] = rec
	}
	j.count++
	j.grown.Broadcast()
	return !j.stopped
}

// stop makes note return false and waitFor return.
func (j *journal) stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stopped = true
	j.grown.Broadcast()
}

// over tells whether the test is over.
func (j *journal) over() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stopped
}

// waitFor waits until n more records were told.
func (j *journal) waitFor(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for n += j.count; j.count < n && !j.stopped; {
		j.grown.Wait()
	}
}

// copy is what was told until now.
func (j *journal) copy() map[reservation.Address]*reservation.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.told)
}

// compareAge orders the states of one record. A stranger's evidence leaves the version
// as it is, but is kept or counted as dropped.
func compareAge(a, b *reservation.Record) int {
	kept := func(r *reservation.Record) int64 {
		return r.HistoryDropped + int64(len(r.History)+len(r.Evidence))
	}
	return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(kept(a), kept(b)))
}

// load is several callers at work on a store: each runs operations of its own, all
// meddle with a few shared ones, and each reads what the others did.
type load struct {
	store   store.Store
	journal *journal
	seed    uint64
	body    int // bytes of each result
	// advance, if set, moves the clock on now and then.
	advance func(time.Duration)
	// refused is called when the store can't answer.
	refused func(*reservation.Error)
}

// run returns when the journal is stopped or the store refuses a command.
func (l *load) run(callers int) {
	var wg sync.WaitGroup
	for n := range callers {
		wg.Go(func() { l.caller(n, rand.New(rand.NewPCG(l.seed, uint64(n)))) })
	}
	wg.Wait()
}

func (l *load) caller(n int, rng *rand.Rand) {
	for i := 0; ; i++ {
		own := storetest.At(fmt.Sprintf("own-%d-%d-%d", l.seed, n, i))
		shared := storetest.At(fmt.Sprintf("shared-%d", rng.IntN(8)))
		retention := time.Second + time.Duration(rng.IntN(1000))*time.Millisecond
		rounds := [][]reservation.Command{
			{
				storetest.Reserve(own, n, storetest.RetentionOf(retention)), storetest.Lookup(own),
				storetest.Reserve(shared, n*1_000_000+i, storetest.Rerunnable, storetest.RetentionOf(retention)), storetest.Lookup(shared),
			},
			{
				storetest.Complete(own, n, l.text(rng)), storetest.Lookup(own),
				storetest.Fail(shared, n*1_000_000+i, reservation.ToldRetryable, l.text(rng)), storetest.Lookup(shared),
			},
		}
		switch complete := rounds[1][0].(*reservation.Complete); i % 3 {
		case 0: // its body goes first
			complete.BodyRetention = retention / 4
		case 1: // an operator erases it, in the batch or after it
			at := rng.IntN(2)
			rounds = append(rounds, nil)
			rounds[1+at] = append(rounds[1+at], storetest.Erase(own), storetest.Lookup(own))
		}
		for _, commands := range rounds {
			if !l.apply(commands) {
				return
			}
		}
		if i%4 == 0 && !l.peek(rng) {
			return
		}
		if l.advance != nil && rng.IntN(8) == 0 {
			l.advance(time.Duration(rng.IntN(30)) * time.Millisecond)
			_, _ = l.store.Sweep(context.Background(), 20)
		}
	}
}

// text is a body that does not compress away.
func (l *load) text(rng *rand.Rand) string {
	body := make([]byte, l.body)
	_, _ = rand.NewChaCha8([32]byte{byte(rng.Uint32())}).Read(body)
	return string(body)
}

// apply runs commands and takes down what each Lookup found.
func (l *load) apply(commands []reservation.Command) bool {
	for i, outcome := range l.store.Apply(context.Background(), commands) {
		switch out := outcome.(type) {
		case *reservation.Found:
			if !l.journal.note(commands[i].Target(), out.Record) {
				return false
			}
		case *reservation.Error:
			if out.Reason == reservation.StoreUnavailable {
				l.refused(out)
				return false
			}
		}
	}
	return true
}

// peek reads another caller's record: what it sees is told as well.
func (l *load) peek(rng *rand.Rand) bool {
	address := storetest.At(fmt.Sprintf("shared-%d", rng.IntN(8)))
	snapshot, err := l.store.Get(context.Background(), store.Want(address))
	if err != nil {
		l.refused(store.Unavailable())
		return false
	}
	rec := snapshot.Found[0].Record
	return rec == nil || l.journal.note(address, rec)
}

// lost lists what was told and is not there: neither that record nor a later one.
// What has expired may be gone.
func lost(t testing.TB, s store.Store, told map[reservation.Address]*reservation.Record) (missing []string) {
	t.Helper()
	for address, want := range told {
		snapshot, err := s.Get(context.Background(), store.Want(address))
		if err != nil {
			t.Fatal(err)
		}
		got := shown(snapshot.Now, snapshot.Found[0].Record)
		want = shown(snapshot.Now, want)
		switch {
		case snapshot.Found[0].Unreadable:
			missing = append(missing, fmt.Sprintf("%v can't be decoded", address))
		case got == nil && want.Expired(snapshot.Now):
		case got == nil:
			missing = append(missing, fmt.Sprintf("%v is gone; told was version %d, %v", address, want.Version, want.State))
		case compareAge(got, want) < 0:
			missing = append(missing, fmt.Sprintf("%v is back at version %d, %v; told was %d, %v", address, got.Version, got.State, want.Version, want.State))
		case compareAge(got, want) == 0 && !reflect.DeepEqual(got, want):
			missing = append(missing, fmt.Sprintf("%v is not what was told: %s", address, gocmp.Diff(want, got)))
		}
	}
	return append(missing, parted(t, s)...)
}

// shown is a record as it is shown: a body that has expired may be swept or not.
func shown(now reservation.Time, rec *reservation.Record) *reservation.Record {
	if rec != nil && rec.BodyExpired(now) {
		return rec.WithoutBody()
	}
	return rec
}

// parted lists changes by operators without their acts, and acts without their changes.
func parted(t testing.TB, s store.Store) (alone []string) {
	t.Helper()
	erased := make(map[reservation.Address]reservation.Time)
	for query := (store.AuditQuery{Limit: store.MaxBatch}); ; {
		page, err := s.Audit(context.Background(), query)
		if err != nil {
			t.Fatal(err)
		}
		for _, act := range page.Entries {
			erased[act.Address] = max(erased[act.Address], act.At)
		}
		if query.Below = page.Next; query.Below == 0 {
			break
		}
	}
	records := stored(t, s)
	for address, rec := range records {
		if rec.ErasedAt != 0 && erased[address] != rec.ErasedAt {
			alone = append(alone, fmt.Sprintf("%v was erased, and no act says so", address))
		}
	}
	for address, at := range erased {
		if rec := records[address]; rec != nil && rec.ErasedAt != at {
			alone = append(alone, fmt.Sprintf("an act says that %v was erased, and it was not", address))
		}
	}
	return alone
}

// stored is everything that a store holds.
func stored(t testing.TB, s store.Store) map[reservation.Address]*reservation.Record {
	t.Helper()
	all := make(map[reservation.Address]*reservation.Record)
	for query := (store.Query{Limit: store.MaxBatch}); ; {
		page, err := s.List(context.Background(), query)
		if err != nil {
			t.Fatal(err)
		}
		var addresses []reservation.Address
		for _, entry := range page.Entries {
			addresses = append(addresses, entry.Address)
		}
		whole, err := s.Get(context.Background(), store.Want(addresses...))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range whole.Found {
			all[addresses[found.Index]] = found.Record
		}
		if query.After = page.End; !page.More {
			return all
		}
	}
}

// mustBeWhole fails the test for anything that Check finds.
func mustBeWhole(t testing.TB, s store.Store) {
	t.Helper()
	report, err := s.Check(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if report.FaultCount > 0 {
		t.Errorf("%d faults, the first: %+v", report.FaultCount, report.Faults[0])
	}
}

// mustHoldAll fails the test unless everything told is there and all is whole.
func mustHoldAll(t testing.TB, s store.Store, told map[reservation.Address]*reservation.Record) {
	t.Helper()
	for _, what := range lost(t, s, told) {
		t.Errorf("lost: %s", what)
	}
	mustBeWhole(t, s)
}

// newSeed makes the seed of a randomized test, and prints it should the test fail.
func newSeed(t testing.TB) uint64 {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return seed
}
