package pgstore

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/storetest"
)

// TestARecordReadsBackAsItWasWritten writes records whose every field is drawn, far
// beyond what transitions make of them.
func TestARecordReadsBackAsItWasWritten(t *testing.T) {
	for name, parameters := range map[string]string{"prepared": "", "exec": "&default_query_exec_mode=exec"} {
		t.Run(name, func(t *testing.T) {
			server, database := postgres.Server(t), postgres.database(t)
			s := openStore(t, Options{DSN: server.DSN(database) + parameters})
			conn, err := pgx.Connect(t.Context(), server.DSN(database)+parameters)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			rapid.Check(t, func(rt *rapid.T) {
				a, want := drawAddress(rt), drawRecord(rt)
				var r rows
				r.add(a, 1, want)
				if _, err := conn.Exec(t.Context(), "DELETE FROM idemd.reservations"); err != nil {
					rt.Fatal(err)
				}
				if _, err := conn.Exec(t.Context(), s.statements.insert, r.arguments()...); err != nil {
					rt.Fatal(err)
				}
				if diff := cmp.Diff(want, get(t, s, a), everyField()); diff != "" {
					rt.Fatalf("written (-) and read (+):\n%s", diff)
				}
			})
		})
	}
}

// everyField has cmp compare results field by field: their Equal takes one without its body
// for the whole.
func everyField() cmp.Option {
	type fields reservation.Result
	return cmp.Transformer("fields", func(r *reservation.Result) *fields { return (*fields)(r) })
}

func drawAddress(t *rapid.T) reservation.Address {
	return reservation.Address{
		Tenant:    rapid.StringMatching(`[a-z0-9._-]{1,64}`).Draw(t, "tenant"),
		Namespace: rapid.StringMatching(`[a-z0-9._-]{1,64}`).Draw(t, "namespace"),
		Key:       rapid.StringMatching(`[!-~]{1,255}`).Draw(t, "key"),
	}
}

func drawRecord(t *rapid.T) *reservation.Record {
	text := rapid.StringMatching(`[^\pC]{0,20}`)
	moment := rapid.Map(rapid.Int64Min(1), func(n int64) reservation.Time { return reservation.Time(n) })
	state := reservation.State(rapid.IntRange(1, 5).Draw(t, "state"))
	rec := &reservation.Record{
		State:              state,
		Fingerprint:        reservation.Fingerprint{Scheme: "s-1", Digest: drawBytes(t, 16, 64)},
		Attempt:            rapid.Int32Range(1, 100).Draw(t, "attempt"),
		AttemptsAllowed:    rapid.Int32Range(1, 100).Draw(t, "attempts allowed"),
		Fence:              rapid.Int64Min(1).Draw(t, "fence"),
		Version:            rapid.Int64Min(1).Draw(t, "version"),
		Owner:              text.Draw(t, "owner"),
		OnLapse:            reservation.LapsePolicy(rapid.IntRange(1, 2).Draw(t, "on lapse")),
		PolicyVersion:      text.Draw(t, "policy version"),
		TookOver:           rapid.Bool().Draw(t, "took over"),
		Checkpoint:         drawBytes(t, 0, 3000),
		CheckpointSequence: rapid.Uint64().Draw(t, "checkpoint sequence"),
		Retention:          time.Duration(rapid.Int64Range(1, 1<<45).Draw(t, "retention")) * time.Microsecond,
		ReservedAt:         moment.Draw(t, "reserved at"),
		LeaseExpiresAt:     moment.Draw(t, "lease expires at"),
		LeaseCapAt:         moment.Draw(t, "lease cap at"),
		Told:               reservation.OutcomeKind(rapid.IntRange(0, 4).Draw(t, "told")),
		Judged:             rapid.Bool().Draw(t, "judged"),
	}
	copy(rec.Token[:], drawBytes(t, 16, 16))
	if state.Finished() {
		rec.FinishedAt, rec.ExpiresAt = moment.Draw(t, "finished at"), moment.Draw(t, "expires at")
		if rapid.Bool().Draw(t, "erased") {
			rec.ErasedAt = max(rec.FinishedAt, moment.Draw(t, "erased at"))
		}
	}
	if state == reservation.FailedRetryable {
		rec.RetryAt = moment.Draw(t, "retry at")
	}
	if state == reservation.Unknown {
		rec.UnknownSince = moment.Draw(t, "unknown since")
	}
	for range rec.Attempt - 1 {
		rec.Spent = append(rec.Spent, reservation.ShortDigest(drawBytes(t, 8, 8)))
	}
	if rapid.Bool().Draw(t, "result") {
		result := storetest.Answer(text.Draw(t, "body"))
		result.BodyRetention = time.Duration(rapid.Int64Range(0, 1<<45).Draw(t, "body retention")) * time.Microsecond
		copy(result.Whole[:], drawBytes(t, 0, 16))
		rec.Result = &result
	}
	copy(rec.Trace[:], drawBytes(t, 0, 25))
	if rapid.Bool().Draw(t, "history") {
		rec.History = []reservation.HistoryEntry{{At: moment.Draw(t, "at"), Kind: reservation.Takeover, Owner: text.Draw(t, "owner then")}}
		rec.HistoryDropped = rapid.Int64Min(0).Draw(t, "dropped")
	}
	return rec
}

// drawBytes is nil where it is empty, as records have it.
func drawBytes(t *rapid.T, least, most int) []byte {
	drawn := rapid.SliceOfN(rapid.Byte(), least, most).Draw(t, "bytes")
	if len(drawn) == 0 {
		return nil
	}
	return drawn
}
