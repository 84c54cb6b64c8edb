package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
)

// Failure is what an error of the Publisher means.
type Failure int

const (
	// Unclear may be the event's fault or the broker's. It counts against the event only
	// where the broker turns out to be there: see Config.Classify.
	Unclear Failure = iota
	// Poison says that the broker will never take this event. It is parked at once.
	Poison
	// Outage says that the broker is away. It counts against no event.
	Outage
)

// Config is what a relay works with. What is zero gets its default.
type Config struct {
	// Outbox is the configuration that the writers have, too. Required.
	Outbox outbox.Config
	// Postgres is where the table lies. The relay opens connections of its own there, at most
	// three, and one more for LISTEN. A transaction pooler is fine (then LISTEN does
	// nothing, and the relay polls). Required; made by pgxpool.ParseConfig.
	Postgres *pgxpool.Config
	// Publisher sends. Its Publish must return nil only when the broker has the message and
	// keeps it. Required. Run does not close it.
	Publisher message.Publisher
	// Topic says where an event goes. Default: "outbox.event." and its aggregate type.
	Topic func(outbox.Event) string

	// Classify says what an error of Publish means. Default: all are Unclear. An unclear
	// failure uses up one of the event's attempts where the broker acknowledged another event
	// that was sent after it in the same round; or where the event fails again, and the broker
	// acknowledged one in between; or where Alive says so.
	Classify func(error) Failure
	// Alive, where given, returns nil if the broker is there. It is asked where nothing else
	// tells, for at most SendTimeout.
	Alive func(context.Context) error
	// Attempts that fail by an event's own fault until it is parked: 1 to 100. Default: 10.
	Attempts int
	// Backoff is the pause after an event's n-th such attempt, n = 1, 2, … Default: 1 s,
	// doubled each time, at most 5 min, less up to a quarter at random.
	Backoff func(n int) time.Duration

	// Batch is how many events are claimed at once: 1 to 1,000. Default: 500.
	Batch int
	// Workers is how many are being sent at once, and how many more may hang: 1 to 1,000. Default: 32.
	Workers int
	// SendTimeout bounds the sending of one event: 10 ms to 5 min. Default: 5 s. A Publish that
	// takes longer is given up, and may send its copy all the same.
	SendTimeout time.Duration
	// Claim is for how long claimed events are this relay's: what it leaves behind when it
	// dies is sent by another one after that. At least twice SendTimeout, at most 1 h. Default: 30 s.
	Claim time.Duration
	// Poll is the longest pause between two looks: 50 ms to 1 min. Default: 1 s.
	Poll time.Duration

	// Logger is told of outages, parked events and errors of the database. Default: nobody.
	Logger *slog.Logger
	// MeterProvider takes the metrics. Default: OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
}

func (c Config) defaulted() Config {
	c.Outbox = c.Outbox.Defaulted()
	if c.Topic == nil {
		c.Topic = func(e outbox.Event) string { return "outbox.event." + e.AggregateType }
	}
	if c.Classify == nil {
		c.Classify = func(error) Failure { return Unclear }
	}
	if c.Backoff == nil {
		c.Backoff = backoff
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	c.Attempts = or(c.Attempts, 10)
	c.Batch, c.Workers = or(c.Batch, 500), or(c.Workers, 32)
	c.SendTimeout, c.Claim, c.Poll = or(c.SendTimeout, 5*time.Second), or(c.Claim, 30*time.Second), or(c.Poll, time.Second)
	return c
}

func or[T comparable](value, standard T) T {
	if value == *new(T) {
		return standard
	}
	return value
}

func (c Config) check() error {
	switch {
	case c.Postgres == nil:
		return errors.New("relay: Postgres is missing")
	case c.Publisher == nil:
		return errors.New("relay: Publisher is missing")
	case c.Attempts < 1 || c.Attempts > 100:
		return fmt.Errorf("relay: Attempts: %d; 1 to 100", c.Attempts)
	case c.Batch < 1 || c.Batch > 1000:
		return fmt.Errorf("relay: Batch: %d; 1 to 1,000", c.Batch)
	case c.Workers < 1 || c.Workers > 1000:
		return fmt.Errorf("relay: Workers: %d; 1 to 1,000", c.Workers)
	case c.SendTimeout < 10*time.Millisecond || c.SendTimeout > 5*time.Minute:
		return fmt.Errorf("relay: SendTimeout: %v; 10ms to 5m", c.SendTimeout)
	case c.Claim < 2*c.SendTimeout || c.Claim > time.Hour:
		return fmt.Errorf("relay: Claim: %v; at least twice SendTimeout (%v), at most 1h", c.Claim, c.SendTimeout)
	case c.Poll < shortestPoll || c.Poll > time.Minute:
		return fmt.Errorf("relay: Poll: %v; %v to 1m", c.Poll, shortestPoll)
	}
	return nil
}

// backoff is the default of Config.Backoff.
func backoff(n int) time.Duration {
	const first, most = time.Second, 5 * time.Minute
	return jittered(min(first<<min(n-1, 20), most))
}

// jittered is the pause less up to a quarter, so that many don't come back at once.
func jittered(d time.Duration) time.Duration { return d - rand.N(d/4+1) }
