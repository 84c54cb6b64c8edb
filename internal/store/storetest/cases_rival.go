package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

func rivalCases() []Case {
	return []Case{
		{Rule: "of many equal callers exactly one is granted", Run: func(r *run) {
			const callers, rounds = 100, 10
			for round := range rounds {
				a := At(fmt.Sprint("race-", round))
				outcomes := make([]reservation.Outcome, callers)
				together(callers, func(i int) { outcomes[i] = r.one(Reserve(a, i)) })
				grants := 0
				for _, outcome := range outcomes {
					switch outcome.(type) {
					case *reservation.Owned:
						grants++
					case *reservation.InProgress:
					default:
						r.Errorf("got %T %v", outcome, outcome)
					}
				}
				equal(r, "grants", grants, 1)
			}
		}},
		{Rule: "of many who take over exactly one does", Run: func(r *run) {
			const callers, rounds = 50, 10
			for round := range rounds {
				a := At(fmt.Sprint("takeover-", round))
				r.one(Reserve(a, 1000, Rerunnable))
				r.h.Advance(Lease)
				outcomes := make([]reservation.Outcome, callers)
				together(callers, func(i int) { outcomes[i] = r.one(Reserve(a, i)) })
				grants := 0
				for _, outcome := range outcomes {
					if _, granted := outcome.(*reservation.Owned); granted {
						grants++
					}
				}
				equal(r, "grants", grants, 1)
			}
		}},
		{Rule: "batches in opposite orders don't stop each other", Run: func(r *run) {
			const keys, callers, rounds = 8, 4, 25
			for round := range rounds {
				together(callers, func(i int) {
					var commands []reservation.Command
					for k := range keys {
						at := k
						if i%2 == 1 {
							at = keys - 1 - k
						}
						commands = append(commands, Reserve(At(fmt.Sprint("order-", round, "-", at)), i))
					}
					for _, outcome := range r.apply(commands...) {
						if err, refused := outcome.(*reservation.Error); refused {
							r.Errorf("refused with %v", err)
						}
					}
				})
			}
		}},
		{Rule: "a sweep beneath callers takes nothing of theirs", Run: func(r *run) {
			const callers, rounds = 4, 20
			stop := make(chan struct{})
			var sweeper sync.WaitGroup
			sweeper.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						r.sweep(50)
					}
				}
			})
			for round := range rounds {
				together(callers, func(i int) {
					a := At(fmt.Sprint("swept-", i))
					token := round*callers + i
					must[*reservation.Owned](r, r.one(Reserve(a, token)))
					must[*reservation.Recorded](r, r.one(Complete(a, token, "done")))
					must[*reservation.Replay](r, r.one(Reserve(a, -1)))
				})
				r.h.Advance(Retention)
			}
			close(stop)
			sweeper.Wait()
		}},
		{Rule: "a lease granted after a wait for the record has its full length", Needs: NeedHold, Run: func(r *run) {
			fresh, lapsed := At("fresh-held"), At("lapsed-held")
			r.one(Reserve(lapsed, 1, Rerunnable, LeaseOf(2*time.Second)))
			r.h.Advance(2 * time.Second)
			for _, a := range []reservation.Address{fresh, lapsed} {
				release := r.h.Hold(a)
				granted := make(chan reservation.Outcome, 1)
				go func() { granted <- r.one(Reserve(a, 2, Rerunnable, LeaseOf(2*time.Second))) }()
				select {
				case outcome := <-granted:
					r.Fatalf("answered %T while a rival held the record", outcome)
				case <-time.After(150 * time.Millisecond):
				}
				r.h.Advance(3 * time.Second)
				release()
				owned := must[*reservation.Owned](r, <-granted)
				equal(r, "lease end", owned.LeaseExpiresAt, r.h.Now().Add(2*time.Second))
			}
		}},
		{Rule: "a held address holds up no other in its batch for long", Needs: NeedHold, Run: func(r *run) {
			held, free := At("held"), At("free")
			r.one(Reserve(held, 1))
			release := r.h.Hold(held)
			defer release()
			ctx, cancel := context.WithTimeout(context.Background(), deadline)
			defer cancel()
			answered := make(chan []reservation.Outcome, 1)
			go func() {
				answered <- r.h.Store.Apply(ctx, []reservation.Command{Reserve(held, 2), Reserve(free, 2)})
			}()
			select {
			case outcomes := <-answered:
				if !store.IsBusy(outcomes[0]) {
					r.Errorf("the held address was answered %T", outcomes[0])
				}
				must[*reservation.Owned](r, outcomes[1])
			case <-time.After(2 * time.Second):
				r.Fatalf("the whole batch waited for a held address")
			}
		}},
	}
}

// together runs n callers at the same moment and waits for them.
func together(n int, caller func(int)) {
	start := make(chan struct{})
	var callers sync.WaitGroup
	for i := range n {
		callers.Go(func() {
			<-start
			caller(i)
		})
	}
	close(start)
	callers.Wait()
}
