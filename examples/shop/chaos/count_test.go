package chaos

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestACountSeesWhatIsTwiceLostAndStray(t *testing.T) {
	for _, c := range []struct {
		name                string
		found               []string
		twice, lost, strays []string
	}{
		{"all right", []string{"b", "a"}, nil, nil, nil},
		{"one twice", []string{"a", "b", "a"}, []string{"a"}, nil, nil},
		{"one three times", []string{"a", "b", "a", "a"}, []string{"a"}, nil, nil},
		{"one lost", []string{"b"}, nil, []string{"a"}, nil},
		{"one twice for one lost", []string{"b", "b"}, []string{"b"}, []string{"a"}, nil},
		{"a stray one", []string{"a", "b", "c"}, nil, nil, []string{"c"}},
		{"nothing", nil, nil, []string{"a", "b"}, nil},
	} {
		got := compare("things", []string{"a", "b"}, c.found)
		slices.Sort(got.lost)
		if !slices.Equal(got.twice, c.twice) || !slices.Equal(got.lost, c.lost) || !slices.Equal(got.stray, c.strays) {
			t.Errorf("%s: %+v", c.name, got)
		}
		if got.right() != (c.name == "all right") {
			t.Errorf("%s: right is %v", c.name, got.right())
		}
	}
}

func TestAWrongCountIsTold(t *testing.T) {
	right := count{tallies: []tally{{name: "orders", wanted: 2, found: 2}}, ordered: 5, taken: 5}
	if err := right.verdict(); err != nil {
		t.Error(err)
	}
	for name, wrong := range map[string]count{
		"orders: twice a, b":            {tallies: []tally{{name: "orders", wanted: 2, found: 4, twice: []string{"a", "b"}}}},
		"lost 1, 2, 3, 4, 5 and 1 more": {tallies: []tally{{name: "mails", lost: []string{"1", "2", "3", "4", "5", "6"}}}},
		"5 were ordered, 4":             {ordered: 5, taken: 4},
		"1 events are parked":           {parked: 1},
		"2 messages were not":           {dead: 2},
	} {
		if err := wrong.verdict(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q is not told: %v", name, err)
		}
	}
}

func TestASeedDrawsTheSameOrdersAgain(t *testing.T) {
	texts := func(seed uint64) string {
		text := &bytes.Buffer{}
		for _, o := range wanted(Config{Orders: 50, Seed: seed}) {
			text.WriteString(o.Reference + o.Article + strings.Repeat("x", int(o.Quantity)))
		}
		return text.String()
	}
	first, again, other := texts(7), texts(7), texts(8)
	if first != again || first == other {
		t.Error("the orders are not the seed's")
	}
}

func TestAProcessThatWasNeverKilledIsToldForTheCountProvesNothingOfIt(t *testing.T) {
	k := newKiller(Config{Orders: 10, Seed: 1}, World{Kill: func(name string) bool { return name != "relay" }})
	for _, name := range victims() {
		if err := k.kill(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.spared(); err == nil || !strings.Contains(err.Error(), "relay") {
		t.Errorf("the error is %v", err)
	}
}

// refusing is a PostgreSQL that starts at its third try only.
type refusing struct{ killed, tries int }

func (r *refusing) Kill() { r.killed++ }

func (r *refusing) Start() error {
	if r.tries++; r.tries < 3 {
		return errors.New("pre-existing shared memory block is still in use")
	}
	return nil
}

func TestPostgreSQLIsStartedAgainAlsoWhereItRefusesForAWhile(t *testing.T) {
	database := &refusing{}
	k := newKiller(Config{Orders: 10, Seed: 1}, World{Postgres: database})
	if err := k.kill(t.Context(), postgres); err != nil || database.killed != 1 || database.tries != 3 || k.times[postgres] != 1 {
		t.Errorf("%v, killed %d times, tried %d times, noted %d", err, database.killed, database.tries, k.times[postgres])
	}
}
