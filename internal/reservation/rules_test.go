package reservation

import (
	"fmt"
	"testing"
	"time"
)

// play runs commands one after the other on one record and returns the last outcome.
func play(t *testing.T, now Time, rec *Record, commands ...Command) (*Record, Outcome) {
	t.Helper()
	var out Outcome
	for _, cmd := range commands {
		rec, out = Decide(now, rec, cmd)
		if rec != nil {
			if err := rec.Check(); err != nil {
				t.Fatalf("%T: %v", cmd, err)
			}
		}
	}
	return rec, out
}

func TestAnErasedRecordHoldsNothingOfItsResult(t *testing.T) {
	extend := &Extend{Address: testAddress, Token: testToken(2), Lease: testLease, Checkpoint: []byte("iban"), CheckpointSequence: 1}
	result := Result{
		Status: 201, Headers: []Header{{"a", []byte("name")}}, ContentType: "text/name", BodyOmitted: true, BodyRef: "s3://name", DecisionID: "name",
	}
	for _, told := range []*Result{&result, {Status: 201, Body: []byte("name")}, (&Result{Status: 201, Body: []byte("name")}).WithoutBody()} {
		complete := &Complete{Address: testAddress, Token: testToken(2), Result: *told}
		rec, _ := play(t, testStart, base{Hold, "left"}.record(), extend, complete, testErase(0))
		if left := *rec.Result; fmt.Sprint(left) != fmt.Sprint(Result{Status: 201, BodyOmitted: true}) || rec.Checkpoint != nil {
			t.Errorf("left is %+v, checkpoint %q", left, rec.Checkpoint)
		}
	}
}

func TestABodyGoesBeforeItsRecordOnlyByPolicyAndOnlyOnceFinished(t *testing.T) {
	complete := func(retention time.Duration, drop bool, body string) *Record {
		rec, _ := play(t, testStart, base{Hold, "left"}.record(), &Complete{
			Address: testAddress, Token: testToken(2), Result: testResult(body), BodyRetention: retention, DropBody: drop,
		})
		return rec
	}
	for name, c := range map[string]struct {
		rec  *Record
		want Time
	}{
		"no policy":                {complete(0, false, "b"), 0},
		"shorter than the record":  {complete(time.Minute, false, "b"), testStart.Add(time.Minute)},
		"as long as the record":    {complete(testRetention, false, "b"), 0},
		"longer than the record":   {complete(2*testRetention, false, "b"), 0},
		"no body":                  {complete(time.Minute, false, ""), 0},
		"not stored at all":        {complete(time.Minute, true, "b"), 0},
		"rounded to a microsecond": {complete(time.Minute+1, false, "b"), testStart.Add(time.Minute) + 1},
	} {
		if got := c.rec.BodyExpiresAt(); got != c.want {
			t.Errorf("%s: it goes at %d, want %d", name, got, c.want)
		}
	}
	rec := complete(time.Minute, false, "b")
	if next, _ := play(t, testStart.Add(time.Minute), rec, &Lookup{testAddress}); next != rec {
		t.Error("time alone is stored")
	}
}

func TestOnlyOperatorsActsThatChangedSomethingAreAudited(t *testing.T) {
	now := testStart.Add(testLease)
	rec := base{Hold, "left"}.record()
	result := testResult("done")
	verdict := &Resolve{Address: testAddress, ExpectedVersion: rec.Version, Verdict: VerdictSucceeded, Result: &result, Actor: "olga", Reason: "r", Evidence: "e"}
	resolved, _ := Decide(now, rec, verdict)
	act := Audited(now, verdict, rec, resolved)
	want := AuditEntry{
		At: now, Actor: "olga", Act: ActResolve, Address: testAddress, Before: Standing{Unknown, rec.Version}, After: Standing{Succeeded, rec.Version + 1},
		Verdict: VerdictSucceeded, Reason: "r", Evidence: "e", ResultDigest: result.Digest(),
	}
	if act == nil || *act != want {
		t.Errorf("kept is %+v, want %+v", act, want)
	}
	if Audited(now, verdict, resolved, resolved) != nil || Audited(now, testErase(0), rec, rec) != nil {
		t.Error("an act that changed nothing is kept")
	}
	complete := &Complete{Address: testAddress, Token: testToken(2)}
	finished, _ := Decide(testStart, rec, complete)
	if Audited(now, complete, rec, finished) != nil {
		t.Error("an owner's Complete is kept as an operator's act")
	}
}

func TestDurationsRoundUpToMicroseconds(t *testing.T) {
	for d, want := range map[time.Duration]Time{0: 0, 1: 1, time.Microsecond: 1, time.Microsecond + 1: 2, time.Second: 1e6} {
		if got := Time(0).Add(d); got != want {
			t.Errorf("%v is %d µs, want %d", d, got, want)
		}
	}
}

func TestExtendIsClampedToTheHardCap(t *testing.T) {
	rec := base{Hold, "left"}.record()
	now := testStart.Add(testCap - testLease)
	_, out := play(t, now, rec, &Extend{Address: testAddress, Token: testToken(2), Lease: testLease})
	if e := out.(*Extended); e.Clamped || e.LeaseRemaining != testLease {
		t.Errorf("a lease that ends at the cap: %+v", e)
	}
	rec, out = play(t, now, rec, &Extend{Address: testAddress, Token: testToken(2), Lease: testLease + micro})
	if e := out.(*Extended); !e.Clamped || e.LeaseExpiresAt != rec.LeaseCapAt {
		t.Errorf("a lease beyond the cap: %+v", e)
	}
	_, out = play(t, rec.LeaseCapAt-1, rec, &Extend{Address: testAddress, Token: testToken(2), Lease: testLease})
	if e := out.(*Extended); e.LeaseRemaining != micro {
		t.Errorf("just below the cap: %+v", e)
	}
}

func TestARepeatedExtendChangesNothing(t *testing.T) {
	extend := &Extend{Address: testAddress, Token: testToken(2), Lease: testLease, Checkpoint: []byte("c"), CheckpointSequence: 1}
	rec, _ := play(t, testStart, base{Hold, "left"}.record(), extend)
	if again, _ := play(t, testStart, rec, extend); again != rec {
		t.Error("the same Extend again was stored again")
	}
}

func TestCheckpointsAreOrderedWithinAnAttempt(t *testing.T) {
	rec := base{Rerun, "left"}.record()
	steps := []struct {
		checkpoint string
		sequence   uint64
		want       string
	}{
		{"five", 5, "five"}, {"four", 4, "five"}, {"five again", 5, "five again"}, {"", 5, "five again"}, {"", 0, "five again"},
		{"", 6, ""}, {"six", 6, "six"}, {"max", 1<<64 - 1, "max"},
	}
	for _, s := range steps {
		rec, _ = play(t, testStart, rec, &Extend{Address: testAddress, Token: testToken(2), Lease: testLease,
			Checkpoint: []byte(s.checkpoint), CheckpointSequence: s.sequence})
		if string(rec.Checkpoint) != s.want {
			t.Errorf("after %q at %d the checkpoint is %q, want %q", s.checkpoint, s.sequence, rec.Checkpoint, s.want)
		}
	}
	rec, _ = play(t, testStart.Add(testLease), rec, testReserve(3),
		&Extend{Address: testAddress, Token: testToken(3), Lease: testLease, Checkpoint: []byte("new attempt"), CheckpointSequence: 1})
	if string(rec.Checkpoint) != "new attempt" {
		t.Errorf("the next attempt counts its own sequence: %q", rec.Checkpoint)
	}
}

func TestRetryAfterMustBeShorterThanTheRetention(t *testing.T) {
	fail := func(after, retention time.Duration) Outcome {
		_, out := Decide(testStart, base{Hold, "left"}.record(),
			&Fail{Address: testAddress, Token: testToken(2), Kind: ToldRetryable, RetryAfter: after, Retention: retention})
		return out
	}
	if err, refused := fail(testRetention, 0).(*Error); !refused || err.Reason != DurationOutOfRange {
		t.Error("a retry at the end of the retention is allowed")
	}
	if err, refused := fail(testRetention-1, 0).(*Error); !refused || err.Reason != DurationOutOfRange {
		t.Error("a retry that rounds up to the end of the retention is allowed")
	}
	if _, ok := fail(testRetention-micro, 0).(*Recorded); !ok {
		t.Error("a retry just before the end of the retention is refused")
	}
	if _, ok := fail(testRetention, 2*testRetention).(*Recorded); !ok {
		t.Error("the retention that Fail itself asks for does not count")
	}
}

func TestRetentionIsNeverShortened(t *testing.T) {
	rec, _ := play(t, testStart, base{Hold, "left"}.record(),
		&Complete{Address: testAddress, Token: testToken(2), Retention: MinRetention})
	if rec.ExpiresAt != testStart.Add(testRetention) {
		t.Errorf("Complete shortened it to %v", rec.Retention)
	}
	short := testReserve(3)
	short.Retention = MinRetention
	rec, _ = play(t, testStart, base{Hold, "left"}.record(),
		&Fail{Address: testAddress, Token: testToken(2), Kind: ToldRetryable}, short)
	if rec.Retention != testRetention {
		t.Errorf("a later attempt shortened it to %v", rec.Retention)
	}
}

func TestARefusedCompleteMakesAnOldVersionUnfit(t *testing.T) {
	rec, _ := play(t, testStart, base{Rerun, "used up"}.record())
	now := testStart.Add(testLease)
	seen := rec.Version
	rec, _ = play(t, now, rec, &Complete{Address: testAddress, Token: testToken(1), Result: testResult("late")})
	_, out := play(t, now, rec, &Resolve{Address: testAddress, ExpectedVersion: seen, Verdict: VerdictNotExecuted, Reason: "r"})
	if err, refused := out.(*Error); !refused || err.Reason != VersionConflict || err.Version != rec.Version {
		t.Errorf("got %v, want VERSION_CONFLICT with %d", out, rec.Version)
	}
	stranger, _ := play(t, now, rec, &Complete{Address: testAddress, Token: testToken(9), Result: testResult("late")})
	if stranger.Version != rec.Version {
		t.Error("a stranger's evidence changed the version")
	}
}

func TestEqualEvidenceIsKeptOnce(t *testing.T) {
	rec := base{Hold, "left"}.record()
	late := &Complete{Address: testAddress, Token: testToken(1), Result: testResult("late")}
	once, _ := play(t, testStart, rec, late)
	if twice, _ := play(t, testStart+5, once, late); twice != once {
		t.Error("the same evidence again was stored again")
	}
}

func TestStrangersPushNothingOut(t *testing.T) {
	rec := base{Hold, "left"}.record()
	rec, _ = play(t, testStart, rec, &Complete{Address: testAddress, Token: testToken(1), Result: testResult("the owner's")})
	history := len(rec.History)
	for i := range 100 {
		rec, _ = play(t, testStart, rec, &Complete{Address: testAddress, Token: testToken(100 + i)})
	}
	if len(rec.Evidence) != MaxEvidence || rec.HistoryDropped != 100+1-MaxEvidence {
		t.Errorf("%d pieces of evidence, %d dropped", len(rec.Evidence), rec.HistoryDropped)
	}
	if len(rec.History) != history || rec.Evidence[0].Attempt != 1 {
		t.Errorf("pushed out: %+v", rec.Evidence[0])
	}
	for i := range MaxEvidence {
		rec, _ = play(t, testStart, rec, &Complete{Address: testAddress, Token: testToken(1), Result: testResult(fmt.Sprint("owner's ", i))})
	}
	for _, e := range rec.Evidence {
		if e.Attempt == 0 {
			t.Error("a stranger's evidence stands where an owner's should")
		}
	}
}

func TestTheHistoryKeepsTheLast24(t *testing.T) {
	first := testReserve(0)
	first.OnLapse, first.Attempts = Rerun, MaxAttempts
	rec, _ := play(t, testStart, nil, first)
	now := testStart
	for i := 1; i < 40; i++ {
		now = now.Add(testLease)
		rec, _ = play(t, now, rec, testReserve(i))
	}
	if len(rec.History) != MaxHistory || rec.HistoryDropped != 39-MaxHistory || rec.History[MaxHistory-1].Attempt != 39 {
		t.Errorf("%d entries, %d dropped, the last about attempt %d", len(rec.History), rec.HistoryDropped, rec.History[len(rec.History)-1].Attempt)
	}
}

func TestThePlainPathLeavesNoHistory(t *testing.T) {
	rec, _ := play(t, testStart, nil, testReserve(1), testReserve(2), &Extend{Address: testAddress, Token: testToken(1), Lease: testLease},
		&Complete{Address: testAddress, Token: testToken(1)}, testReserve(2), &Lookup{testAddress})
	if len(rec.History)+len(rec.Evidence) != 0 {
		t.Errorf("it left %+v %+v", rec.History, rec.Evidence)
	}
}

func TestAVerdictOfNotExecutedAllowsOneMoreAttemptUpTo100(t *testing.T) {
	rec := base{Hold, "used up"}.record()
	now := testStart.Add(testLease)
	rec, _ = play(t, now, rec, &Resolve{Address: testAddress, ExpectedVersion: rec.Version, Verdict: VerdictNotExecuted, Reason: "r"})
	if rec.AttemptsAllowed != 3 {
		t.Errorf("allowed are %d", rec.AttemptsAllowed)
	}
	if _, out := play(t, now, rec, testReserve(3)); out.(*Owned).Attempt != 3 {
		t.Errorf("got %+v", out)
	}
}

func TestOwnedSaysTheSameAgain(t *testing.T) {
	rec, first := play(t, testStart.Add(testLease), base{Rerun, "left"}.record(), testReserve(3))
	_, again := play(t, testStart.Add(testLease), rec, testReserve(3))
	a, b := *first.(*Owned), *again.(*Owned)
	if !b.Repeated || !a.Takeover {
		t.Errorf("%+v, then %+v", a, b)
	}
	b.Repeated = false
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("%+v, then %+v", a, b)
	}
}

func TestAnInputRecordIsNeverChanged(t *testing.T) {
	for heading, cases := range allCases() {
		for _, c := range cases {
			if c.rec == nil {
				continue
			}
			before := fmt.Sprintf("%+v", *c.rec)
			Decide(c.now, c.rec, c.cmd)
			if after := fmt.Sprintf("%+v", *c.rec); after != before {
				t.Fatalf("%s %v changed its input from %s to %s", heading, c.situation, before, after)
			}
		}
	}
}

// A database's clock can be set back: what follows is still possible, and fences and
// versions still grow.
func TestAClockSetBackMakesNoImpossibleRecord(t *testing.T) {
	rec, _ := play(t, testStart, nil, testReserve(1))
	before := *rec
	rec, _ = play(t, testStart.Add(-time.Hour), rec,
		&Extend{Address: testAddress, Token: testToken(1), Lease: testLease},
		&Fail{Address: testAddress, Token: testToken(1), Kind: ToldRetryable}, testReserve(2),
		&Complete{Address: testAddress, Token: testToken(2)})
	if rec.State != Succeeded || rec.Fence <= before.Fence || rec.Version <= before.Version {
		t.Errorf("from %+v to %+v", before, rec)
	}
}

// What is finer than a microsecond can't be stored: a record must not hold it either.
func TestARetentionInNanosecondsIsStoredWhole(t *testing.T) {
	reserve := testReserve(1)
	reserve.Retention = MinRetention + 1
	rec, _ := play(t, testStart, nil, reserve)
	if rec.Retention != MinRetention+time.Microsecond {
		t.Errorf("the retention is %v", rec.Retention)
	}
	rec, _ = play(t, testStart, rec, &Complete{Address: testAddress, Token: testToken(1), Retention: 2*MinRetention + 1})
	if rec.Retention != 2*MinRetention+time.Microsecond || rec.ExpiresAt != testStart.Add(rec.Retention) {
		t.Errorf("the retention is %v, it expires at %d", rec.Retention, rec.ExpiresAt)
	}
}

// What may be tried again goes on from its checkpoint: without it a worker would do anew what
// it has done.
func TestErasingLeavesTheCheckpointOfWhatMayBeTriedAgain(t *testing.T) {
	for state, kept := range map[State]bool{FailedRetryable: true, FailedFinal: false, Succeeded: false} {
		rec := &Record{
			State: state, Attempt: 1, AttemptsAllowed: 3, Version: 7, ExpiresAt: 1 << 60, Checkpoint: []byte("card charged"),
			Result: &Result{Status: 500, Body: []byte("a person's data")},
		}
		next, outcome := Decide(1, rec, &Erase{Address: Address{"t", "n", "k"}, Reason: "asked", Actor: "olga"})
		if _, done := outcome.(*Recorded); !done || (len(next.Checkpoint) > 0) != kept || len(next.Result.Body) > 0 {
			t.Errorf("%v: %v, left are %q and %q", state, outcome, next.Checkpoint, next.Result.Body)
		}
	}
}
