package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

const (
	// every is the pause between two kills.
	every = 200 * time.Millisecond
	// soonest and latest say how long after new orders one is killed.
	soonest, latest = 5 * time.Millisecond, 80 * time.Millisecond
	// leastRounds is how often each process is killed while there are orders to come, and
	// mostRounds bounds a run.
	leastRounds, mostRounds = 3, 100
	// postgresIn says in which part of the rounds PostgreSQL is killed, too: a half. It takes
	// everything else along.
	postgresIn = 2
	// startLimit is how long it may take until PostgreSQL runs again.
	startLimit = 20 * time.Second
	// postgres is its name among the victims.
	postgres = "PostgreSQL"
)

// victims are all but PostgreSQL, which may be none of ours, and the mail server: it is
// somebody else's, and keeps its mails in memory.
func victims() []string { return []string{"idemd", "broker", "orders", "relay", "warehouse", "mailer"} }

// killer kills, and lets orders come in: some before each kill, so that it hits them on
// their way.
type killer struct {
	World
	lots *rand.Rand
	// turns has one for each order that may be placed.
	turns chan struct{}
	// batch is how many come in before a kill.
	batch int
	times map[string]int
}

func newKiller(c Config, w World) *killer {
	const leastKills = leastRounds * 6
	return &killer{
		World: w, lots: rand.New(rand.NewPCG(c.Seed, 1)), turns: make(chan struct{}, c.Orders+leastKills),
		batch: (c.Orders + leastKills - 1) / leastKills, times: map[string]int{},
	}
}

// run kills each once in a round, in an order drawn by lot, until ctx ends.
func (k *killer) run(ctx context.Context) error {
	next := time.NewTicker(every)
	defer next.Stop()
	for range mostRounds {
		round := victims()
		if k.Postgres != nil && k.lots.IntN(postgresIn) == 0 {
			round = append(round, postgres)
		}
		k.lots.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		for _, name := range round {
			k.letIn()
			if !pause(ctx, soonest+time.Duration(k.lots.Int64N(int64(latest-soonest)))) {
				return nil
			}
			if err := k.kill(ctx, name); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-next.C:
			}
		}
	}
	return errors.New("there is no end of it: everything was killed too often")
}

// letIn lets some orders in. More than there are do no harm.
func (k *killer) letIn() {
	for range k.batch {
		select {
		case k.turns <- struct{}{}:
		default:
			return
		}
	}
}

// kill kills what is running just now; what is down is spared.
func (k *killer) kill(ctx context.Context, name string) error {
	if name == postgres {
		k.Postgres.Kill()
		k.times[name]++
		return k.startPostgres(ctx)
	}
	if k.Kill(name) {
		k.times[name]++
	}
	return nil
}

// startPostgres starts it as soon as it can: as long as a connection's process that was just
// made outlives the server's, it refuses to.
func (k *killer) startPostgres(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit) // it has to run for the count, too
	defer cancel()
	for {
		err := k.Postgres.Start()
		if err == nil || !pause(ctx, again) {
			return err
		}
	}
}

// spared is an error where somebody was never killed: then the count would prove nothing.
func (k *killer) spared() error {
	for _, name := range victims() {
		if k.times[name] == 0 {
			return fmt.Errorf("%s was never killed: does it run?", name)
		}
	}
	return nil
}

// String tells who was killed how often.
func (k *killer) String() string {
	var all []string
	for _, name := range append(victims(), postgres) {
		all = append(all, fmt.Sprintf("%s %d", name, k.times[name]))
	}
	return strings.Join(all, ", ")
}

// pause is false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
