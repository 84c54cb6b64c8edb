package relay

import (
	"context"
	"errors"
	"strings"
	"time"
)

// judge decides whose fault failures are. It remembers from round to round, and is used by
// one goroutine.
type judge struct {
	config Config
	// lastSign is when the latest send began that the broker has acknowledged.
	lastSign time.Time
	// failedAt is when events failed last whose failures have not been counted.
	failedAt map[string]time.Time
	// silent is how many rounds have failed in a row without any sign of the broker.
	silent int
	// lastFailure is what the log tells of an outage's beginning.
	lastFailure lastFailure
}

type lastFailure struct{ id, topic, text string }

// mostRemembered bounds judge.failedAt. Beyond it everything is forgotten: then some
// attempts are not counted.
const mostRemembered = 10_000

// verdicts tells what is to be written of a round's events.
func (j *judge) verdicts(ctx context.Context, events []event, results []outcome) (o outcomes) {
	signs := 0
	for i := range results {
		if results[i].acknowledged() {
			signs++
			o.sent = append(o.sent, events[i].ID)
			delete(j.failedAt, events[i].ID)
			if results[i].begun.After(j.lastSign) {
				j.lastSign = results[i].begun
			}
		}
	}
	alive, unproven := j.asker(ctx), 0
	for i, r := range results {
		switch {
		case r.begun.IsZero():
			o.released = append(o.released, events[i].ID)
		case r.underWay():
		case r.err != nil:
			f := j.verdict(&events[i], r, alive)
			if !f.counted {
				unproven++
				j.lastFailure = lastFailure{f.id, topicOf(j.config, &events[i]), f.text}
			}
			o.failed = append(o.failed, f)
		}
	}
	if signs > 0 {
		j.silent = 0
	} else if unproven > 0 {
		j.silent++
	}
	return o
}

// asker asks Alive, at most once.
func (j *judge) asker(ctx context.Context) func() bool {
	asked, alive := false, false
	return func() bool {
		if !asked && j.config.Alive != nil {
			ctx, cancel := context.WithTimeout(ctx, j.config.SendTimeout)
			defer cancel()
			asked, alive = true, j.config.Alive(ctx) == nil
		}
		return alive
	}
}

func (j *judge) verdict(e *event, r outcome, alive func() bool) failed {
	f := failed{id: e.ID, hangs: r.hangs, text: lastError(r.err)}
	switch j.class(r.err) {
	case Poison:
		f.parked, f.counted = true, true
	case Outage:
	default:
		before, again := j.failedAt[e.ID]
		f.counted = j.lastSign.After(r.ended) || again && j.lastSign.After(before) || alive()
		f.parked = f.counted && e.attempts+1 >= j.config.Attempts
	}
	if f.counted {
		delete(j.failedAt, e.ID)
		f.pause = j.config.Backoff(e.attempts + 1)
		return f
	}
	if len(j.failedAt) >= mostRemembered {
		clear(j.failedAt)
	}
	j.failedAt[e.ID], f.pause = r.ended, j.config.Backoff(1)
	return f
}

func (j *judge) class(err error) Failure {
	switch {
	case errors.Is(err, errDamaged):
		return Poison
	case errors.Is(err, errHangs):
		return Unclear
	}
	return j.config.Classify(err)
}

// away: the broker gives no sign.
func (j *judge) away() bool { return j.silent > 0 }

// look is where the next round looks. While the broker gives no sign the newest events and
// all in turn alternate: what was added since shows soonest that it is there, and nothing
// that it would take waits behind what it does not.
func (j *judge) look() look {
	switch {
	case !j.away():
		return inTurn
	case j.silent%2 == 1:
		return newest
	}
	return throughout
}

// topicOf is where an event goes; "" where that panics, which fails it when it is sent.
func topicOf(c Config, e *event) (topic string) {
	defer func() { _ = recover() }()
	return c.Topic(e.Event)
}

// pause is how long to leave the broker alone: not at all after the first round without a
// sign, for the next one looks for it among other events.
func (j *judge) pause() time.Duration {
	const first, most = 100 * time.Millisecond, 5 * time.Second
	if j.silent < 2 {
		return 0
	}
	return jittered(min(first<<min(j.silent-2, 10), most))
}

const maxErrorBytes = 500

// lastError is an error's text as PostgreSQL takes it.
func lastError(err error) string {
	text := strings.ReplaceAll(err.Error(), "\x00", "")
	return strings.ToValidUTF8(text[:min(len(text), maxErrorBytes)], "")
}
