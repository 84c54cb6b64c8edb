package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/idemd/idemd/internal/reservation"
)

// Model runs scripts, drawn at random, on the reference and on each store at once, with
// equal clocks, and compares everything that they tell. Where they differ, the shortest
// script found that makes them differ is printed, with the seed that draws it again.
func Model(t *testing.T, opens map[string]Open) {
	const scriptsPerGroup = 20 // opening takes long, and so does reading what has gathered
	var g *group
	rapid.Check(t, func(rt *rapid.T) {
		drawn := scripts().Draw(rt, "script")
		if g == nil || g.played == scriptsPerGroup {
			g = openGroup(t, opens)
		}
		mine := g
		g = nil // it is used again only if its stores agreed to the end
		mine.play(rt, drawn)
		g = mine
	})
}

// group is the reference and the stores that are compared with it.
type group struct {
	reference *Harness
	names     []string // in the order of comparison
	others    map[string]*Harness
	played    int
	tenant    string // of the script under way
	t         T
}

func openGroup(t testing.TB, opens map[string]Open) *group {
	g := &group{reference: OpenMem(t), others: make(map[string]*Harness)}
	for name, open := range opens {
		g.names = append(g.names, name)
		g.others[name] = open(t)
	}
	slices.Sort(g.names)
	return g
}

// play runs a script under a tenant of its own, so that scripts before it don't matter.
func (g *group) play(t T, s script) {
	t.Helper()
	g.played++
	g.t, g.tenant = t, fmt.Sprintf("t%d", g.played)
	for _, next := range s {
		g.do(next)
	}
	g.list(step{limit: 2})
	g.list(step{limit: 2, state: reservation.Unknown})
	g.check()
}

// same asks the reference and every store, and fails where they differ.
func same[V any](g *group, what string, ask func(*run) V) {
	g.t.Helper()
	want := ask(&run{T: g.t, h: g.reference})
	for _, name := range g.names {
		got := ask(&run{T: g.t, h: g.others[name]})
		if reflect.DeepEqual(want, got) {
			continue // a hundred times faster than what follows, which also takes nil for empty
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), everyField()); diff != "" {
			g.t.Fatalf("%s: %s differs from the reference (-reference +store):\n%s", what, name, diff)
		}
	}
}

// everyField has cmp compare results field by field: their Equal takes one without its body
// for the whole.
func everyField() cmp.Option {
	type fields reservation.Result
	return cmp.Transformer("fields", func(r *reservation.Result) *fields { return (*fields)(r) })
}

// each does something to the reference and every store.
func (g *group) each(do func(*Harness)) {
	do(g.reference)
	for _, name := range g.names {
		do(g.others[name])
	}
}

// record is what the reference holds at a place.
func (g *group) record(place int) *reservation.Record {
	return (&run{T: g.t, h: g.reference}).get(placeOf(g.tenant, place))
}
