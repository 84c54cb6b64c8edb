package codec

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/idemd/idemd/internal/reservation"
)

var update = flag.Bool("update", false, "write the golden files anew; only for new ones")

// golden are records whose bytes must stay readable for ever.
func golden() map[string]*reservation.Record {
	plain := &reservation.Record{
		State: reservation.Processing, Fingerprint: reservation.Fingerprint{Scheme: "json-v1", Digest: bytes.Repeat([]byte{0xab}, 32)},
		Attempt: 1, AttemptsAllowed: 20, Fence: 1_700_000_000_000_000, Version: 1_700_000_000_000_000,
		Token: reservation.Token("0123456789abcdef").Digest(), Owner: "pod-1", OnLapse: reservation.Hold, PolicyVersion: "2026-11",
		Retention: 7 * 24 * time.Hour, ReservedAt: 1_700_000_000_000_000, LeaseExpiresAt: 1_700_000_030_000_000,
		LeaseCapAt: 1_700_086_400_000_000,
	}
	full := *plain
	full.State, full.Attempt, full.Told, full.TookOver, full.Judged = reservation.FailedRetryable, 3, reservation.ToldUnknown, true, true
	full.Spent = []reservation.ShortDigest{{1, 2, 3, 4, 5, 6, 7, 8}, {0xff}}
	full.Checkpoint, full.CheckpointSequence = []byte("page 2\x00\xff"), 1<<64-1
	full.FinishedAt, full.ExpiresAt, full.RetryAt = 1_700_000_010_000_000, 1_700_604_810_000_000, 1_700_000_020_000_000
	full.UnknownSince = 1_700_000_009_000_000
	full.Result = &reservation.Result{
		Status: -7, Headers: []reservation.Header{{Name: "a", Value: []byte{0, 0xff}}, {Name: "empty"}},
		ContentType: "text/plain", Body: []byte("\x00body\xff"), DecisionID: "ch_1",
	}
	full.History = []reservation.HistoryEntry{{
		At: 1_700_000_009_000_000, Kind: reservation.Resolved, Attempt: 2, Owner: "pod-1", From: reservation.Unknown,
		To: reservation.FailedRetryable, Actor: "olga", Reason: "the bank\nsays no", Evidence: "ticket \u2713",
		ResultDigest: reservation.ResultDigest{9},
	}, {At: 1_700_000_009_500_000, Kind: reservation.Overturned, Outcome: reservation.Completed}}
	full.Evidence = []reservation.HistoryEntry{{
		At: 1_700_000_009_700_000, Kind: reservation.StaleOutcome, Outcome: reservation.ToldFinal,
		TokenDigest: reservation.ShortDigest{7}, ResultDigest: reservation.ResultDigest{8},
	}}
	full.HistoryDropped = 5
	omitted := *plain
	omitted.State, omitted.Told = reservation.Succeeded, reservation.Completed
	omitted.FinishedAt, omitted.ExpiresAt = 1_700_000_010_000_000, 1_700_604_810_000_000
	omitted.Result = &reservation.Result{BodyOmitted: true, BodyRef: "s3://bucket/key"}
	empty := omitted
	empty.Result = &reservation.Result{}
	traced := *plain
	for i := range traced.Trace {
		traced.Trace[i] = byte(i)
	}
	ageing := omitted
	ageing.Result = &reservation.Result{Status: 200, Body: []byte("goes earlier"), BodyRetention: time.Hour}
	stripped := omitted
	stripped.Result = ageing.Result.WithoutBody()
	erased := omitted
	erased.Result, erased.ErasedAt = &reservation.Result{Status: 200, BodyOmitted: true}, 1_700_000_020_000_000
	return map[string]*reservation.Record{
		"plain": plain, "full": &full, "omitted": &omitted, "empty-result": &empty,
		"traced": &traced, "ageing": &ageing, "stripped": &stripped, "erased": &erased,
	}
}

// What was ever stored stays readable, and is written the same way.
func TestStoredBytesAreThoseOfTheGoldenFiles(t *testing.T) {
	for name, rec := range golden() {
		path := "testdata/record-v1-" + name + ".hex"
		encoded := hex.EncodeToString(EncodeRecord(rec)) + "\n"
		if *update {
			if err := os.WriteFile(path, []byte(encoded), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if encoded != string(want) {
			t.Errorf("%s is written as\n%s, in the golden file it is\n%s", name, encoded, want)
		}
		stored, err := hex.DecodeString(strings.TrimSpace(string(want)))
		if err != nil {
			t.Fatal(err)
		}
		if read, err := DecodeRecord(stored); err != nil || !reflect.DeepEqual(read, rec) {
			t.Errorf("%s is read as %+v (%v), want %+v", name, read, err, rec)
		}
	}
}

func TestANewerVersionIsRefused(t *testing.T) {
	stored := EncodeRecord(golden()["plain"])
	stored[0]++
	if _, err := DecodeRecord(stored); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("got %v", err)
	}
}

// Acts of operators are kept for good.
func TestAuditEntriesAreReadAsTheyWereWritten(t *testing.T) {
	entry := &reservation.AuditEntry{
		ID: 7, At: 1_700_000_020_000_000, Actor: "olga", Act: reservation.ActResolve,
		Address: reservation.Address{Tenant: "acme", Namespace: "payments", Key: "charge-1"},
		Before:  reservation.Standing{State: reservation.Unknown, Version: 5},
		After:   reservation.Standing{State: reservation.Succeeded, Version: 6},
		Verdict: reservation.VerdictSucceeded, Reason: "the bank\nsays yes", Evidence: "statement 17", ResultDigest: reservation.ResultDigest{1},
	}
	const path = "testdata/audit-v1.hex"
	encoded := hex.EncodeToString(EncodeAudit(entry)) + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(encoded), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || encoded != string(want) {
		t.Fatalf("it is written as\n%s, in the golden file it is\n%s (%v)", encoded, want, err)
	}
	stored, err := hex.DecodeString(strings.TrimSpace(string(want)))
	if err != nil {
		t.Fatal(err)
	}
	if read, err := DecodeAudit(7, stored); err != nil || !reflect.DeepEqual(read, entry) {
		t.Errorf("read as %+v (%v), want %+v", read, err, entry)
	}
	for n := range stored {
		if read, err := DecodeAudit(7, stored[:n]); err == nil && reflect.DeepEqual(read, entry) {
			t.Errorf("the first %d of %d bytes read as the whole", n, len(stored))
		}
	}
}

// A later minor version may add fields: they are skipped.
func TestUnknownFieldsAreSkipped(t *testing.T) {
	rec := golden()["full"]
	stored := append(EncodeRecord(rec), 0xfa, 0x07, 3, 'n', 'e', 'w') // field 127
	if read, err := DecodeRecord(stored); err != nil || !reflect.DeepEqual(read, rec) {
		t.Errorf("read as %+v (%v)", read, err)
	}
}

func TestWhatIsCutOffIsRefusedOrHasLostItsLastField(t *testing.T) {
	stored := EncodeRecord(golden()["full"])
	for n := range stored {
		if read, err := DecodeRecord(stored[:n]); err == nil && reflect.DeepEqual(read, golden()["full"]) {
			t.Errorf("the first %d of %d bytes read as the whole", n, len(stored))
		}
	}
}

// Rapid prints the seed of a failure.
func TestWhatIsWrittenIsRead(t *testing.T) {
	text := rapid.StringN(0, 20, 60)
	raw := rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40), clone)
	hours := rapid.Map(rapid.IntRange(0, 9600), func(v int) time.Duration { return time.Duration(v) * time.Hour })
	time := rapid.Map(rapid.Int64(), func(v int64) reservation.Time { return reservation.Time(v) })
	rapid.Check(t, func(t *rapid.T) {
		rec := &reservation.Record{
			State:       reservation.State(rapid.Uint8Range(1, 5).Draw(t, "state")),
			Fingerprint: reservation.Fingerprint{Scheme: text.Draw(t, "scheme"), Digest: raw.Draw(t, "digest")},
			Attempt:     rapid.Int32Range(1, 1<<31-1).Draw(t, "attempt"), AttemptsAllowed: rapid.Int32().Draw(t, "allowed"),
			Fence: rapid.Int64().Draw(t, "fence"), Version: rapid.Int64().Draw(t, "version"),
			Owner: text.Draw(t, "owner"), OnLapse: reservation.LapsePolicy(rapid.Uint8().Draw(t, "lapse")),
			PolicyVersion: text.Draw(t, "policy"), TookOver: rapid.Bool().Draw(t, "took over"),
			Checkpoint: raw.Draw(t, "checkpoint"), CheckpointSequence: rapid.Uint64().Draw(t, "sequence"),
			ReservedAt: time.Draw(t, "reserved"), LeaseExpiresAt: time.Draw(t, "lease"), LeaseCapAt: time.Draw(t, "cap"),
			FinishedAt: time.Draw(t, "finished"), ExpiresAt: time.Draw(t, "expires"), RetryAt: time.Draw(t, "retry"),
			UnknownSince: time.Draw(t, "unknown"), Told: reservation.OutcomeKind(rapid.Uint8().Draw(t, "told")),
			HistoryDropped: rapid.Int64().Draw(t, "dropped"), ErasedAt: time.Draw(t, "erased"),
			Trace: reservation.TraceContext(rapid.SliceOfN(rapid.Byte(), 25, 25).Draw(t, "trace")),
		}
		if rapid.Bool().Draw(t, "has result") {
			rec.Result = &reservation.Result{
				Status: rapid.Int32().Draw(t, "status"), Body: raw.Draw(t, "body"), BodyRef: text.Draw(t, "ref"),
				BodyRetention: hours.Draw(t, "body retention"),
				Whole:         reservation.ResultDigest(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "whole")),
			}
			for range rapid.IntRange(0, 3).Draw(t, "headers") {
				rec.Result.Headers = append(rec.Result.Headers, reservation.Header{Name: text.Draw(t, "name"), Value: raw.Draw(t, "value")})
			}
		}
		read, err := DecodeRecord(EncodeRecord(rec))
		if err != nil || !reflect.DeepEqual(read, rec) {
			t.Fatalf("wrote %+v, read %+v (%v)", rec, read, err)
		}
	})
}

// Whatever lies on the disk, reading it does not panic, and what can be read can be
// written and read again.
func FuzzDecodeRecord(f *testing.F) {
	for _, rec := range golden() {
		f.Add(EncodeRecord(rec))
	}
	f.Add([]byte{})
	f.Add([]byte{1, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := DecodeRecord(data)
		if err != nil {
			return
		}
		again, err := DecodeRecord(EncodeRecord(rec))
		if err != nil || !reflect.DeepEqual(again, rec) {
			t.Fatalf("read %+v, then %+v (%v)", rec, again, err)
		}
	})
}
