package relay

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

// listen wakes the relay when the outbox notifies. It is an early wake and nothing else:
// the relay polls all the same, so it does not matter where notifications get lost, or a
// pooler swallows them all.
func (r *Relay) listen(ctx context.Context) (woken <-chan struct{}, stop func()) {
	if !r.config.Outbox.Notify {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	wake, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, time.Minute) {
			if heard, err := r.hear(ctx, wake); err != nil && ctx.Err() == nil {
				r.config.Logger.LogAttrs(ctx, slog.LevelWarn, "relay: does not listen, only polls, for a while", slog.String("error", err.Error()))
				if heard {
					pause = time.Second
				}
			}
			rest(ctx, jittered(pause), nil, nil)
		}
	}()
	return wake, func() { cancel(); <-ended }
}

// hear listens on a connection of its own until that breaks. It tells whether it was told
// anything.
func (r *Relay) hear(ctx context.Context, wake chan<- struct{}) (heard bool, err error) {
	settings := r.config.Postgres.ConnConfig.Copy()
	if before := r.config.Postgres.BeforeConnect; before != nil {
		if err := before(ctx, settings); err != nil {
			return false, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, settings)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{r.table.Channel()}.Sanitize()); err != nil {
		return false, err
	}
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return heard, err
		}
		heard = true
		select {
		case wake <- struct{}{}:
		default: // a wake is on its way
		}
	}
}
