package storetest

import (
	"fmt"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

func batchCases() []Case {
	return []Case{
		{Rule: "commands on one address in a batch run in order and see each other", Run: func(r *run) {
			a := At("hot")
			outcomes := r.apply(
				Complete(a, 1, "too early"), Reserve(a, 1), Reserve(a, 2), Extend(a, 1), Complete(a, 1, "done"),
				Complete(a, 1, "done"), Reserve(a, 3), Lookup(a),
			)
			r.refused(outcomes[0], reservation.NotFound)
			must[*reservation.Owned](r, outcomes[1])
			must[*reservation.InProgress](r, outcomes[2])
			must[*reservation.Extended](r, outcomes[3])
			must[*reservation.Recorded](r, outcomes[4])
			equal(r, "repeated", must[*reservation.Recorded](r, outcomes[5]).Repeated, true)
			must[*reservation.Replay](r, outcomes[6])
			equal(r, "shown", must[*reservation.Found](r, outcomes[7]).Shown, reservation.Succeeded)
			must[*reservation.Replay](r, r.one(Reserve(a, 4)))
		}},
		{Rule: "one failing command fails no other", Run: func(r *run) {
			outcomes := r.apply(
				Reserve(At("a"), 1), Complete(At("b"), 1, ""), Reserve(At("c"), 1),
				Extend(At("d"), 1), Reserve(At("e"), 1),
			)
			for _, i := range []int{0, 2, 4} {
				must[*reservation.Owned](r, outcomes[i])
			}
			r.refused(outcomes[1], reservation.NotFound)
			r.refused(outcomes[3], reservation.NotFound)
		}},
		{Rule: "an empty batch is answered with nothing", Run: func(r *run) { r.apply() }},
		{Rule: "the largest batch is answered in its order", Run: func(r *run) {
			commands := make([]reservation.Command, store.MaxBatch)
			for i := range commands {
				// Neither sorted nor distinct: key 0 comes back ten times.
				commands[i] = Reserve(At(fmt.Sprint("key-", (i*7919)%900)), (i*7919)%900)
			}
			seen := make(map[reservation.Address]bool)
			for i, outcome := range r.apply(commands...) {
				owned := must[*reservation.Owned](r, outcome)
				equal(r, fmt.Sprint("repeated of ", i), owned.Repeated, seen[commands[i].Target()])
				seen[commands[i].Target()] = true
			}
			for i := range commands {
				commands[i] = Complete(commands[i].Target(), (i*7919)%900, fmt.Sprint((i*7919)%900))
			}
			for _, outcome := range r.apply(commands...) {
				must[*reservation.Recorded](r, outcome)
			}
			for i, c := range commands[:50] {
				want := Answer(fmt.Sprint((i * 7919) % 900))
				if replay := must[*reservation.Replay](r, r.one(Reserve(c.Target(), 5000))); !replay.Result.Equal(&want) {
					r.Fatalf("%v replays another's result", c.Target())
				}
			}
		}},
	}
}
