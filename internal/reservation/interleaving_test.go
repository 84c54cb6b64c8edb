package reservation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// The search: every order in which a bounded set of calls can reach one address.
// Each call may come late (any time after it could be sent), twice, or never. In
// between leases lapse, the retention ends, the sweeper runs and an operator gives
// verdicts. After every step the laws must hold.

// world is everything that the laws look at. It is a value: a step makes a new one.
type world struct {
	rec    *Record
	now    Time
	counts [maxSteps]uint8 // how often each step was taken

	granted     [4]bool // tokens that were granted an attempt, ever
	grants      uint8   // attempts granted in the life of the operation
	notExecuted uint8   // "not executed" said by an owner or an operator
	lastFence   int64
	finished    string // the first finished result, as replayed
	forgotten   bool   // the record of the operation was forgotten
	looked      int64  // the version that the operator saw
	erased      bool   // the first finished result was erased
}

const maxSteps = 32

// step is one thing that can happen, at most `most` times.
type step struct {
	name string
	most uint8
	can  func(*world) bool
	do   func(*world, *laws)
}

// laws collects what was broken.
type laws struct{ broken []string }

func (l *laws) demand(holds bool, format string, args ...any) {
	if !holds {
		l.broken = append(l.broken, fmt.Sprintf(format, args...))
	}
}

func always(*world) bool { return true }

// searchSteps are the steps of n callers with one token each, under a lapse policy.
func searchSteps(callers int, lapse LapsePolicy, duplicates uint8) []step {
	var steps []step
	for caller := 1; caller <= callers; caller++ {
		token := testToken(caller)
		wasGranted := func(w *world) bool { return w.granted[caller] }
		steps = append(steps,
			step{fmt.Sprint("reserve-", caller), duplicates, always, func(w *world, l *laws) {
				c := testReserve(caller)
				c.OnLapse, c.FirstAttemptAt = lapse, testStart
				w.reserve(caller, c, l)
			}},
			step{fmt.Sprint("complete-", caller), duplicates, wasGranted, func(w *world, l *laws) {
				w.call(&Complete{Address: testAddress, Token: token, Result: testResult(fmt.Sprint("by ", caller))}, l)
			}},
			step{fmt.Sprint("retryable-", caller), 1, wasGranted, func(w *world, l *laws) {
				w.fail(&Fail{Address: testAddress, Token: token, Kind: ToldRetryable}, l)
			}},
			step{fmt.Sprint("unknown-", caller), 1, wasGranted, func(w *world, l *laws) {
				w.fail(&Fail{Address: testAddress, Token: token, Kind: ToldUnknown}, l)
			}},
		)
	}
	return append(steps,
		step{"lapse", 2, always, func(w *world, _ *laws) { w.now = w.now.Add(testLease) }},
		step{"forget", 1, func(w *world) bool { return w.rec != nil && w.rec.State.Finished() }, func(w *world, _ *laws) {
			w.now = w.now.Add(testRetention)
			w.forgotten = w.forgotten || w.rec.Expired(w.now)
		}},
		step{"sweep", 1, func(w *world) bool { return w.rec != nil && w.rec.Expired(w.now) }, func(w *world, _ *laws) { w.rec = nil }},
		// Whoever resolves looks first, and may be late: then it names an old version.
		step{"look", 1, unresolvedWorld, func(w *world, _ *laws) { w.looked = w.rec.Version }},
		step{"resolve-not-executed", 1, haveLooked, func(w *world, l *laws) { w.resolve(VerdictNotExecuted, l) }},
		step{"erase", 1, func(w *world) bool { return w.finished != "" && !w.forgotten }, func(w *world, l *laws) {
			if o, recorded := w.call(testErase(0), l).(*Recorded); recorded && !o.Repeated {
				w.erased = true
			}
		}},
		step{"resolve-succeeded", 1, haveLooked, func(w *world, l *laws) { w.resolve(VerdictSucceeded, l) }},
	)
}

func haveLooked(w *world) bool { return w.looked != 0 }

func unresolvedWorld(w *world) bool { return w.rec != nil && w.rec.Unresolved(w.now) }

// call runs a command and checks what must hold of any answer.
func (w *world) call(cmd Command, l *laws) Outcome {
	before := w.rec
	next, out := Decide(w.now, w.rec, cmd)
	w.rec = next
	if next != before {
		l.demand(next.Check() == nil, "an impossible record was made: %v", next.Check())
		l.demand(before == nil || next.Version >= before.Version, "the version went back")
	}
	if live := w.rec != nil && !w.rec.Expired(w.now); live && (w.rec.State == Succeeded || w.rec.State == FailedFinal) {
		result := w.rec.State.String() + string(w.rec.Result.Body)
		if w.finished == "" {
			w.finished = result
		}
		l.demand(w.isFirst(w.rec.State, w.rec.Result), "the first finished result was %q, now %q is stored, erased %v", w.finished, result, w.erased)
	}
	return out
}

// isFirst tells whether a result is the first finished one, or what an erasure leaves of it.
func (w *world) isFirst(state State, result *Result) bool {
	if w.erased || w.rec.ErasedAt != 0 {
		return strings.HasPrefix(w.finished, state.String()) && result.erased()
	}
	return w.finished == state.String()+string(result.Body)
}

func (w *world) reserve(caller int, c *Reserve, l *laws) {
	hadAttempt := w.granted[caller]
	switch o := w.call(c, l).(type) {
	case *Owned:
		if o.Repeated {
			l.demand(hadAttempt, "a token that was never granted is let back in")
			return
		}
		l.demand(!hadAttempt, "token %d was granted twice: a duplicate started a ghost attempt", caller)
		l.demand(!w.forgotten, "an old retry ran as new")
		l.demand(o.Fence > w.lastFence, "fence %d follows %d", o.Fence, w.lastFence)
		l.demand(w.finished == "", "granted after it had finished as %s", w.finished)
		w.granted[caller], w.lastFence = true, o.Fence
		w.grants++
		if c.OnLapse == Hold {
			l.demand(w.grants <= 1+w.notExecuted, "%d grants under HOLD, %d times somebody said that it was not executed", w.grants, w.notExecuted)
		}
	case *Replay:
		l.demand(w.isFirst(o.State, o.Result), "replayed %v %q, the first finished result was %q", o.State, o.Result.Body, w.finished)
	}
}

func (w *world) fail(c *Fail, l *laws) {
	if o, recorded := w.call(c, l).(*Recorded); recorded && !o.Repeated && c.Kind == ToldRetryable {
		w.notExecuted++
	}
}

func (w *world) resolve(verdict Verdict, l *laws) {
	c := &Resolve{Address: testAddress, ExpectedVersion: w.looked, Verdict: verdict, Actor: "olga", Reason: "asked"}
	if verdict != VerdictNotExecuted {
		result := testResult("by verdict")
		c.Result = &result
	}
	if o, recorded := w.call(c, l).(*Recorded); recorded && !o.Repeated && verdict == VerdictNotExecuted {
		w.notExecuted++
	}
}

// worldKey tells worlds apart in which something different can happen. Times count in
// whole seconds: the microsecond between two steps decides nothing.
type worldKey struct {
	state               State
	attempt, allowed    int32
	token               byte
	told                OutcomeKind
	judged              bool
	result              string
	lease, expiry       int64
	evidence            int
	counts              [maxSteps]uint8
	granted             [4]bool
	grants, notExecuted uint8
	finished            string
	forgotten           bool
	looked, upToDate    bool
	erased              bool
}

func (w *world) key() worldKey {
	k := worldKey{
		counts: w.counts, granted: w.granted, grants: w.grants, notExecuted: w.notExecuted,
		finished: w.finished, forgotten: w.forgotten, erased: w.erased,
	}
	k.looked, k.upToDate = w.looked != 0, w.rec != nil && w.looked == w.rec.Version
	if r := w.rec; r != nil {
		k.state, k.attempt, k.allowed, k.token, k.told, k.judged = r.State, r.Attempt, r.AttemptsAllowed, r.Token[0], r.Told, r.Judged
		k.lease, k.expiry, k.evidence = seconds(r.LeaseExpiresAt, w.now), seconds(r.ExpiresAt, w.now), len(r.Evidence)
		if r.Result != nil {
			k.result = string(r.Result.Body)
		}
	}
	return k
}

func seconds(t, now Time) int64 {
	return int64((t.Sub(now) + time.Millisecond).Truncate(time.Second) / time.Second)
}

// search walks every world that can be reached and returns the first broken law with
// the steps that led to it.
func search(steps []step) (worlds int, broken string) {
	seen := map[worldKey]bool{}
	var walk func(w world, path []string) string
	walk = func(w world, path []string) string {
		key := w.key()
		if seen[key] {
			return ""
		}
		seen[key] = true
		for i := range steps {
			if w.counts[i] == steps[i].most || !steps[i].can(&w) {
				continue
			}
			next, l := w, laws{}
			next.counts[i]++
			next.now += 1 // time passes between any two steps
			steps[i].do(&next, &l)
			taken := append(slices.Clip(path), steps[i].name)
			if len(l.broken) > 0 {
				return fmt.Sprintf("%v after %v", l.broken, taken)
			}
			if broken := walk(next, taken); broken != "" {
				return broken
			}
		}
		return ""
	}
	broken = walk(world{now: testStart}, nil)
	return len(seen), broken
}

func TestNoInterleavingBreaksALaw(t *testing.T) {
	for _, lapse := range []LapsePolicy{Hold, Rerun} {
		for callers, duplicates := range map[int]uint8{2: 2, 3: 1} {
			if raceDetector || testing.Short() {
				callers, duplicates = 2, 1
			}
			t.Run(fmt.Sprintf("%v, %d callers, each call up to %d times", lapse, callers, duplicates), func(t *testing.T) {
				began := time.Now()
				worlds, broken := search(searchSteps(callers, lapse, duplicates))
				if broken != "" {
					t.Fatal(broken)
				}
				t.Logf("%d worlds in %v", worlds, time.Since(began))
			})
		}
	}
}

// The search must be able to find something: each of these faults breaks a law.
func TestTheSearchFindsFaults(t *testing.T) {
	faults := map[string]func(w *world){
		"a lapse under HOLD frees the key": func(w *world) {
			if w.rec != nil && w.rec.Lapsed(w.now) {
				w.rec = nil
			}
		},
		"spent tokens are forgotten": func(w *world) {
			if w.rec != nil && w.rec.State == FailedRetryable {
				changed := *w.rec
				changed.Token = TokenDigest{1}
				w.rec = &changed
			}
		},
		"fences start over": func(w *world) {
			if w.rec != nil && w.rec.State == FailedRetryable {
				changed := *w.rec
				changed.Fence = 0
				w.rec = &changed
				w.lastFence += 1 << 40
			}
		},
		"an erasure is forgotten": func(w *world) {
			if w.erased && w.rec != nil && w.rec.ErasedAt != 0 {
				changed := *w.rec
				result := testResult("back again")
				changed.Result, changed.ErasedAt = &result, 0
				w.rec = &changed
			}
		},
		"a finished result is replaced": func(w *world) {
			if w.rec != nil && w.rec.State == Succeeded {
				changed := *w.rec
				result := testResult("something else")
				changed.Result = &result
				w.rec = &changed
			}
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			steps := append(searchSteps(2, Hold, 2), step{"fault", 1, always, func(w *world, _ *laws) { fault(w) }})
			if _, broken := search(steps); broken == "" {
				t.Error("nothing was found")
			} else {
				t.Log(broken)
			}
		})
	}
}
