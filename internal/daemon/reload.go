package daemon

import (
	"context"
	"log/slog"
	"time"
)

// reloadEvery is how often files are looked at.
const reloadEvery = 5 * time.Second

// watched is something that was read from files.
type watched struct {
	what string
	// reload reads them again, and puts them in force if they have changed and are good;
	// ordered: somebody says that they have.
	reload func(ordered bool) (changed bool, err error)
	// wrong is what was last wrong with them; it is logged once.
	wrong string
}

// reloader reads files again when they have changed. What is not good is said and leaves
// the old in force.
type reloader struct {
	files  []*watched
	logger *slog.Logger
	// failed and renewed count.
	failed, renewed func(what string)
}

// run looks at the files with every tick and every order, until ctx ends.
func (r *reloader) run(ctx context.Context, tick <-chan time.Time, order <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			r.look(false)
		case <-order:
			r.look(true)
		}
	}
}

// look reads all files again. Somebody who ordered it hears of every result.
func (r *reloader) look(ordered bool) {
	for _, w := range r.files {
		changed, err := w.reload(ordered)
		switch {
		case err != nil:
			r.failed(w.what)
			if ordered || err.Error() != w.wrong {
				r.logger.Error("what was read is wrong, and what was in force before stays so", "what", w.what, "error", err.Error())
			}
			w.wrong = err.Error()
			continue
		case changed:
			r.renewed(w.what)
			r.logger.Info("read again and in force", "what", w.what)
		case ordered || w.wrong != "":
			r.logger.Info("read again: it is as what is in force", "what", w.what)
		}
		w.wrong = ""
	}
}
