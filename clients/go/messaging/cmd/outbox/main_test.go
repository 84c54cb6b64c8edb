package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
	"github.com/idemd/idemd/internal/pgtest"
)

var postgres pgtest.Shared

func TestMain(m *testing.M) { os.Exit(postgres.Run(m)) }

// desk is a database with an outbox in which two events are parked, and one is pending.
type desk struct {
	*testing.T
	dsn  string
	conn *pgx.Conn
}

const (
	firstID  = "0190a2c4-7b1e-7c3d-8a4f-000000000001"
	secondID = "0190a2c4-7b1e-7c3d-8a4f-000000000002"
	thirdID  = "0190a2c4-7b1e-7c3d-8a4f-000000000003"
)

func newDesk(t *testing.T) *desk {
	t.Helper()
	server := postgres.Server(t)
	d := &desk{T: t, dsn: server.DSN(server.Database(t, ""))}
	d.want(0, "", "migrate")
	var err error
	if d.conn, err = pgx.Connect(t.Context(), d.dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.conn.Close(context.Background()) })
	_, err = d.conn.Exec(t.Context(), `INSERT INTO shop.events (id, aggregatetype, aggregateid, type, payload, state, attempts, last_error, sent_at, created_at) VALUES
		('`+firstID+`', 'order', '1', 'Placed', 'abc', 2, 10, E'no\x1b[2J', NULL, '2026-01-01'),
		('`+secondID+`', 'order', '2', 'Paid', '', 2, 10, 'no', NULL, '2026-01-01'),
		('`+thirdID+`', 'order', '3', 'Paid', '', 0, 0, NULL, NULL, '2026-01-01'),
		(gen_random_uuid(), 'order', '4', 'Paid', '', 1, 0, NULL, '2026-01-01', '2026-01-01')`)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *desk) run(args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = run(append([]string{"--postgres", d.dsn, "--schema", "shop", "--table", "events"}, args...), &o, &e)
	return code, o.String(), e.String()
}

// want runs a command; out is what its output must be.
func (d *desk) want(code int, out string, args ...string) {
	d.Helper()
	got, said, complained := d.run(args...)
	if got != code || said != out {
		d.Errorf("%v: exit code %d, %q, %q; want %d, %q", args, got, said, complained, code, out)
	}
}

func TestWhatIsParkedIsListedWithoutSteeringTheTerminal(t *testing.T) {
	d := newDesk(t)
	d.want(0, `POSITION  ID                                    AGGREGATE  TYPE    BYTES  ATTEMPTS  CREATED               LAST ERROR
1         `+firstID+`  order 1    Placed  3      10        2026-01-01T00:00:00Z  no\x1b[2J
2         `+secondID+`  order 2    Paid    0      10        2026-01-01T00:00:00Z  no
`, "list")
	_, out, _ := d.run("list", "--state", "pending", "-o", "json")
	var rows []outbox.Row
	if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) != 1 || rows[0].ID != thirdID {
		t.Errorf("%v, %s", err, out)
	}
}

func TestParkedEventsAreRedrivenByIdByTypeAndAllTogether(t *testing.T) {
	d := newDesk(t)
	d.want(7, "redriven 1\n", "redrive", firstID, thirdID, firstID)
	d.want(0, "redriven 0\n", "redrive", "--type", "Placed")
	d.want(0, "{\n  \"redriven\": 1\n}\n", "redrive", "--all", "-o", "json")
	for _, args := range [][]string{{"redrive"}, {"redrive", firstID, "--all"}} {
		if code, _, _ := d.run(args...); code != exitUsage {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
	if code, _, said := d.run("redrive", "not-a-uuid"); code != exitFailed || !strings.Contains(said, "uuid") {
		t.Errorf("exit code %d, %q", code, said)
	}
}

func TestSweepRemovesWhatWasSentAndByAgeAlsoWhatIsPending(t *testing.T) {
	d := newDesk(t)
	d.want(0, "swept 1\n", "sweep")
	d.want(0, "swept 1\n", "sweep", "--by-age", "--retention", "1h")
	d.want(0, "pending         0\noldest pending  0s\nparked          2\n", "stats")
	d.want(1, "swept 0\n", "sweep", "--retention=0s")
}

func TestAConnectionStringIsNotInAnError(t *testing.T) {
	var out, errOut bytes.Buffer
	code := run([]string{"--postgres", "postgres://user:secret@[::1", "stats"}, &out, &errOut)
	if code != exitFailed || strings.Contains(errOut.String(), "secret") {
		t.Errorf("exit code %d, %q", code, errOut.String())
	}
	if code := run([]string{"stats"}, &out, &errOut); code != exitUsage {
		t.Errorf("without one: exit code %d", code)
	}
}
