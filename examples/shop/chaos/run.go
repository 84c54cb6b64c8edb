package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// BrokenKey breaks the customers: they make a new key for each try.
const BrokenKey = "new-keys"

// Config says what is done.
type Config struct {
	// Orders is how many are placed, by this number of Clients at once.
	Orders, Clients int
	// Seed draws what is ordered and who is killed. When, is the machine's affair.
	Seed uint64
	// Broken is told in the report; BrokenKey breaks something here.
	Broken string
}

// World is what is running.
type World struct {
	// Orders and Mails are URLs of the service and of the mail server, Broker the broker's.
	Orders, Mails, Broker string
	// Kill kills a process by its name, which is then started again.
	Kill func(name string) bool
	// Postgres is killed, too; nil: it is not.
	Postgres interface {
		Kill()
		Start() error
	}
	// Pool is of the database in which the orders and the reservations are.
	Pool *pgxpool.Pool
}

// Limits of a run.
const (
	// placeLimit is how long one order may take in all, with all its retries.
	placeLimit = 2 * time.Minute
	// quietLimit is how long it may take until nothing is under way any more.
	quietLimit = time.Minute
)

// Run places the orders, kills what it can as long as orders are placed, waits until all
// is quiet and writes the count to out. The error says that a count is wrong, or that
// there was no end of it.
func Run(ctx context.Context, c Config, w World, out io.Writer) error {
	_, _ = fmt.Fprintf(out, "seed %d: %d orders by %d clients\n", c.Seed, c.Orders, c.Clients)
	if c.Broken != "" {
		_, _ = fmt.Fprintf(out, "broken: %s\n", c.Broken)
	}
	begin, k := time.Now(), newKiller(c, w)
	placed, err := placeUnderFire(ctx, c, w, k)
	if err = errors.Join(err, k.spared()); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "placed in %.1f s with %d retries; killed with -9: %s\n", time.Since(begin).Seconds(), placed.retries, k)
	begin = time.Now()
	if err := awaitQuiet(ctx, w); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "quiet after %.1f s more\n", time.Since(begin).Seconds())
	count, err := countAll(ctx, w, placed)
	if err != nil {
		return err
	}
	count.write(out)
	return count.verdict()
}

// placeUnderFire places all orders while k kills.
func placeUnderFire(ctx context.Context, c Config, w World, k *killer) (placements, error) {
	ctx, enough := context.WithCancelCause(ctx)
	defer enough(nil)
	killed := make(chan error, 1)
	go func() {
		err := k.run(ctx)
		if err != nil {
			enough(err) // nobody waits for orders that are not let in any more
		}
		killed <- err
	}()
	placed, err := place(ctx, c, w.Orders, k.turns)
	enough(nil)
	if killErr := <-killed; killErr != nil {
		return placed, killErr
	}
	return placed, err
}
