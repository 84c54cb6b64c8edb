package storetest

import (
	"time"

	"github.com/idemd/idemd/internal/reservation"
)

// Ageing is caller n's Complete with a body that goes before the record.
func Ageing(address reservation.Address, n int, body string) *reservation.Complete {
	c := Complete(address, n, body)
	c.BodyRetention = BodyRetention
	return c
}

func bodyCases() []Case {
	return []Case{
		{Rule: "a body that goes before its record is shown until then and not from then on, swept or not", Run: func(r *run) {
			for _, sweeps := range []bool{false, true} {
				a := At("ageing")
				r.one(Reserve(a, 1))
				r.one(Ageing(a, 1, "short-lived"))
				finished := r.h.Now()
				equal(r, "it goes at", r.get(a).BodyExpiresAt(), finished.Add(BodyRetention))
				r.h.Advance(BodyRetention - tick)
				equal(r, "swept too early", r.sweep(100).Stripped, 0)
				r.bodyShown(a, "short-lived")
				r.h.Advance(tick)
				if sweeps {
					equal(r, "swept", r.sweep(100).Stripped, 1)
					equal(r, "stored body", len(r.get(a).Result.Body), 0)
					equal(r, "swept again", r.sweep(100).Stripped, 0)
				}
				version := r.get(a).Version
				r.bodyShown(a, "")
				again := must[*reservation.Recorded](r, r.one(Ageing(a, 1, "short-lived")))
				equal(r, "the same again: repeated", again.Repeated, true)
				equal(r, "the version", again.Version, version)
				r.refused(r.one(Ageing(a, 1, "another")), reservation.AlreadyFinished)
				r.bodyShown(a, "")
				r.h.Advance(Retention)
				r.sweepAll()
				equal(r, "forgotten", r.get(a) == nil, true)
			}
		}},
		{Rule: "bodies go in small steps, the oldest first, and the sweep tells how far it came", Run: func(r *run) {
			for i := range 5 {
				a := At(string(rune('a' + i)))
				r.one(Reserve(a, 1))
				r.one(Ageing(a, 1, ""))
				r.h.Advance(time.Second)
			}
			r.h.Advance(BodyRetention)
			swept := r.sweep(2)
			equal(r, "stripped", swept.Stripped, 2)
			equal(r, "deleted", swept.Deleted, 0)
			equal(r, "more", swept.More, true)
			equal(r, "lag", swept.Lag, 3*time.Second)
			for i := range 5 {
				if gone := len(r.get(At(string(rune('a'+i)))).Result.Body) == 0; gone != (i < 2) {
					r.Errorf("of 5 bodies number %d: gone is %v after two", i, gone)
				}
			}
			swept = r.sweep(100)
			equal(r, "stripped", swept.Stripped, 3)
			equal(r, "more", swept.More, false)
			equal(r, "lag", swept.Lag, 0)
		}},
		{Rule: "only the body that has expired is taken out: not that of a later life, nor of a result told since", Run: func(r *run) {
			a, b := At("later-life"), At("told-since")
			r.one(Reserve(a, 1))
			r.one(Ageing(a, 1, "first life"))
			r.h.Advance(Retention)
			r.one(Reserve(a, 2))
			r.one(Complete(a, 2, "second life"))

			r.one(Reserve(b, 1))
			fail := Fail(b, 1, reservation.ToldRetryable, "first attempt")
			fail.BodyRetention = BodyRetention
			r.one(fail)
			r.h.Advance(BodyRetention / 2)
			r.one(Reserve(b, 2))
			r.one(Complete(b, 2, "second attempt"))
			r.h.Advance(BodyRetention)
			equal(r, "stripped", r.sweep(100).Stripped, 0)
			r.bodyShown(a, "second life")
			r.bodyShown(b, "second attempt")
		}},
		{Rule: "the next attempt is given what the last failure told, as far as it is still shown", Run: func(r *run) {
			for _, waits := range []time.Duration{BodyRetention - tick, BodyRetention} {
				a := At(waits.String())
				r.one(Reserve(a, 1))
				fail := Fail(a, 1, reservation.ToldRetryable, "try again")
				fail.BodyRetention = BodyRetention
				r.one(fail)
				r.h.Advance(waits)
				owned := must[*reservation.Owned](r, r.one(Reserve(a, 2)))
				equal(r, "status", owned.LastFailure.Status, 201)
				equal(r, "body omitted", owned.LastFailure.BodyOmitted, waits == BodyRetention)
				if again := must[*reservation.Owned](r, r.one(Reserve(a, 2))); !again.LastFailure.Equal(owned.LastFailure) {
					r.Errorf("told %+v, then %+v", owned.LastFailure, again.LastFailure)
				}
			}
		}},
		{Rule: "a body that is not to be stored is not, and telling the result again is known", Run: func(r *run) {
			a := At("dropped")
			r.one(Reserve(a, 1))
			drop := func(body string) *reservation.Complete {
				c := Complete(a, 1, body)
				c.DropBody = true
				return c
			}
			r.one(drop("secret"))
			result := r.get(a).Result
			equal(r, "stored body", len(result.Body), 0)
			equal(r, "omitted", result.BodyOmitted, true)
			equal(r, "decision id", result.DecisionID, "ch_1")
			r.bodyShown(a, "")
			equal(r, "repeated", must[*reservation.Recorded](r, r.one(drop("secret"))).Repeated, true)
			// Also where the policy has changed since.
			equal(r, "repeated", must[*reservation.Recorded](r, r.one(Complete(a, 1, "secret"))).Repeated, true)
			r.refused(r.one(drop("another")), reservation.AlreadyFinished)
		}},
		{Rule: "what was told of an unresolved operation stays whole until it is settled", Run: func(r *run) {
			a := At("unresolved")
			r.one(Reserve(a, 1))
			fail := Fail(a, 1, reservation.ToldUnknown, "timeout")
			fail.BodyRetention = BodyRetention
			r.one(fail)
			r.h.Advance(2 * BodyRetention)
			r.sweepAll()
			found := must[*reservation.Found](r, r.one(Lookup(a)))
			want := Answer("timeout")
			equal(r, "whole", found.Record.Result.Equal(&want) && len(found.Record.Result.Body) > 0, true)
		}},
	}
}

// bodyShown demands what REPLAY and Lookup show of a body; empty = that it is omitted.
func (r *run) bodyShown(a reservation.Address, body string) {
	r.Helper()
	replayed := must[*reservation.Replay](r, r.one(Reserve(a, 77))).Result
	looked := must[*reservation.Found](r, r.one(Lookup(a))).Record.Result
	want := Answer(body)
	for what, result := range map[string]*reservation.Result{"REPLAY": replayed, "Lookup": looked} {
		equal(r, what+": status", result.Status, want.Status)
		equal(r, what+": decision id", result.DecisionID, want.DecisionID)
		equal(r, what+": body omitted", result.BodyOmitted, body == "")
		if body == "" {
			equal(r, what+": bytes of the body", len(result.Body), 0)
		} else {
			equal(r, what+": body", string(result.Body), string(want.Body))
		}
	}
}
