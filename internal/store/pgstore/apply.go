package pgstore

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

const (
	// maxRounds bounds how often a group is run again because a rival was first.
	maxRounds = 8
	// maxTries bounds how often a transaction is tried that fails.
	maxTries = 3
	// maxRepeats is the same for failures that cost nothing but another try.
	maxRepeats = 6
	// splitParts is into how many a batch is split that waited for a held address.
	splitParts = 8
	// splitLimit bounds how long a batch with held addresses takes: those that are
	// left then are answered with Busy.
	splitLimit = time.Second
)

// batch is what one Apply was given, and its answers.
type batch struct {
	commands []reservation.Command
	outcomes []reservation.Outcome
}

func (b *batch) answer(groups []store.Group, outcome reservation.Outcome) {
	for _, group := range groups {
		group.Answer(outcome, b.outcomes)
	}
}

func (b *batch) onlyReads(group store.Group) bool {
	return !slices.ContainsFunc(group.Indexes, func(i int) bool {
		_, lookup := b.commands[i].(*reservation.Lookup)
		return !lookup
	})
}

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, commands []reservation.Command) []reservation.Outcome {
	outcomes, err := detached(ctx, s, func() ([]reservation.Outcome, error) {
		b := &batch{commands: commands, outcomes: make([]reservation.Outcome, len(commands))}
		a := &application{store: s, batch: b}
		a.run(ctx, a.applyPlain(ctx, store.Groups(commands)))
		return b.outcomes, nil
	})
	if err != nil {
		outcomes = make([]reservation.Outcome, len(commands))
		for i := range outcomes {
			outcomes[i] = store.Unavailable()
		}
	}
	return outcomes
}

// application is one Apply under way.
type application struct {
	store *Store
	batch *batch
	// splitUntil is when the patience with held addresses ends; zero = none was met.
	splitUntil time.Time
}

// run answers every command of the groups.
func (a *application) run(ctx context.Context, groups []store.Group) {
	for range maxRounds {
		if len(groups) == 0 {
			return
		}
		groups = a.round(ctx, groups)
	}
	a.batch.answer(groups, store.Busy())
}

// round runs the groups in one transaction, which is tried again where that helps. It
// returns those at which a rival was first: they are decided anew on what it wrote.
func (a *application) round(ctx context.Context, groups []store.Group) (again []store.Group) {
	tries, repeats := 0, 0
	tolerance := tolerated(len(groups))
	for {
		again, err := a.try(ctx, groups, tolerance)
		if err == nil {
			a.store.note(ctx, nil)
			return again
		}
		pause := time.Duration(0)
		switch remedyFor(err) {
		case runAgain:
			repeats++
			pause = jitter(time.Millisecond << repeats)
		case decideAgain:
			repeats++
			tolerance *= 2
		case runAgainLater:
			tries++
			pause = jitter(10 * time.Millisecond << (2 * tries))
		case split:
			a.split(ctx, groups)
			return nil
		case isolate:
			a.isolate(ctx, groups, err)
			return nil
		case giveUp:
			tries = maxTries
		}
		switch {
		case repeats >= maxRepeats:
			a.batch.answer(groups, store.Busy())
			return nil
		case tries >= maxTries || !wait(ctx, pause):
			a.store.note(ctx, err)
			a.batch.answer(groups, store.Unavailable())
			return nil
		}
	}
}

func (a *application) try(ctx context.Context, groups []store.Group, tolerance time.Duration) (again []store.Group, err error) {
	err = a.store.on(ctx, a.store.pool, func(work context.Context, conn *pgx.Conn) error {
		t := &transaction{store: a.store, conn: conn, batch: a.batch, groups: groups}
		// ctx, not work: nobody waits any more for what is not written yet.
		again, err = t.run(work, ctx.Err, tolerance)
		return err
	})
	return again, err
}

// split runs parts of the groups, each in a transaction of its own, until the one that
// is held stands alone.
func (a *application) split(ctx context.Context, groups []store.Group) {
	if a.splitUntil.IsZero() {
		a.splitUntil = time.Now().Add(splitLimit)
	}
	if len(groups) == 1 || time.Now().After(a.splitUntil) {
		a.batch.answer(groups, store.Busy())
		return
	}
	size := (len(groups) + splitParts - 1) / splitParts
	for part := range slices.Chunk(groups, size) {
		a.run(ctx, part)
	}
}

// isolate runs parts of the groups, each in a transaction of its own, until the one
// that can't be read stands alone.
func (a *application) isolate(ctx context.Context, groups []store.Group, err error) {
	if len(groups) == 1 {
		a.store.log.ErrorContext(ctx, "the database can't read a row: idemd check names it", "error", describe(err))
		a.batch.answer(groups, store.Unreadable())
		return
	}
	size := (len(groups) + splitParts - 1) / splitParts
	for part := range slices.Chunk(groups, size) {
		a.run(ctx, part)
	}
}

// tolerated is how long a decision may wait for its write. It grows with the work, so
// that only a wait exceeds it.
func tolerated(groups int) time.Duration {
	return 20*time.Millisecond + time.Duration(groups)*200*time.Microsecond
}

// jitter is d, more or less, so that rivals don't meet again.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
