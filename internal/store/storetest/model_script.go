package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/idemd/idemd/internal/reservation"
)

// script is what is done to the stores, drawn at random and printed where it fails.
type script []step

// step is one thing that is done. What depends on the record that is met, such as a
// version or a boundary in time, is named here and looked up when it is done.
type step struct {
	what     act
	commands []order           // actApply
	place    int               // the address that a boundary belongs to
	boundary boundary          // actAdvanceTo
	by       time.Duration     // actAdvance, and beside a boundary
	limit    int               // actSweep, actList
	state    reservation.State // actList
}

// act is the kind of a step.
type act string

const (
	actApply     act = "apply"
	actAdvance   act = "advance"
	actAdvanceTo act = "advance to"
	actSweep     act = "sweep"
	actRead      act = "read"
	actList      act = "list"
	actReopen    act = "reopen"
)

// boundary is a moment at which a record becomes something else.
type boundary string

const (
	leaseEnd  boundary = "lease end"
	bodyEnd   boundary = "end of the body"
	leaseCap  boundary = "lease cap"
	expiry    boundary = "expiry"
	retryTime boundary = "retry time"
)

// order is a command to be made: by which caller, about which place.
type order struct {
	kind     string
	place    int
	caller   int
	version  int64 // of a verdict, beside the current one
	variant  int   // which of a few contents
	duration time.Duration
	edits    []string // of a Reserve
	bodies   bodies   // of an outcome
}

// bodies is what a policy says of bodies.
type bodies uint8

const (
	keepBodies bodies = iota
	ageBodies
	dropBodies
)

// BodyRetention is that of commands whose bodies go first.
const BodyRetention = time.Minute

func (b bodies) retention() time.Duration {
	if b == ageBodies {
		return BodyRetention + 1 // rounded up to whole microseconds
	}
	return 0
}

// GoString keeps printed scripts short.
func (s step) GoString() string {
	switch s.what {
	case actApply:
		parts := make([]string, len(s.commands))
		for i, c := range s.commands {
			parts[i] = fmt.Sprintf("%s(place %d, caller %d, variant %d, version %+d, %v, %v, bodies %d)",
				c.kind, c.place, c.caller, c.variant, c.version, c.duration, c.edits, c.bodies)
		}
		return "apply " + strings.Join(parts, " · ")
	case actAdvanceTo:
		return fmt.Sprintf("advance to the %s at place %d %+d µs", s.boundary, s.place, s.by.Microseconds())
	case actList:
		return fmt.Sprintf("list by %d, state %v", s.limit, s.state)
	}
	return fmt.Sprintf("%s %v %d", s.what, s.by, s.limit)
}

// The dimensions of a script: few, so that everything meets everything.
const (
	places  = 6
	callers = 4
	longest = 20
)

// placeOf is the address of a place. They differ in little.
func placeOf(tenant string, place int) reservation.Address {
	return []reservation.Address{
		{Tenant: tenant, Namespace: "n", Key: "k"},
		{Tenant: tenant, Namespace: "n", Key: "K"},
		{Tenant: tenant, Namespace: "n.n", Key: "k"},
		{Tenant: tenant, Namespace: "n", Key: "n.k"},
		{Tenant: tenant + ".n", Namespace: "n", Key: "k"},
		{Tenant: tenant + "-", Namespace: "n", Key: "k"},
	}[place]
}

// scripts draws scripts. Lists drawn by rapid are short, five or six on average: lists of
// lists make scripts that go far and still shrink to one step.
func scripts() *rapid.Generator[script] {
	return rapid.Custom(func(t *rapid.T) script {
		chapters := rapid.SliceOfN(rapid.SliceOfN(steps(), 1, longest), 1, longest).Draw(t, "steps")
		return slices.Concat(chapters...)
	})
}

func steps() *rapid.Generator[step] {
	acts := []act{
		actApply, actApply, actApply, actApply, actApply, actApply, actApply, actApply, actApply, actApply,
		actAdvanceTo, actAdvanceTo, actAdvanceTo, actAdvance, actSweep, actRead, actRead, actList, actReopen,
	}
	return rapid.Custom(func(t *rapid.T) step {
		s := step{what: rapid.SampledFrom(acts).Draw(t, "act")}
		switch s.what {
		case actApply:
			s.commands = rapid.SliceOfN(orders(), 1, 6).Draw(t, "commands")
		case actAdvance:
			s.by = rapid.SampledFrom([]time.Duration{time.Microsecond, time.Second, time.Hour}).Draw(t, "by")
		case actAdvanceTo:
			s.place = aPlace(t)
			s.boundary = rapid.SampledFrom([]boundary{leaseEnd, expiry, bodyEnd, retryTime, leaseCap}).Draw(t, "boundary")
			s.by = time.Duration(rapid.IntRange(-1, 1).Draw(t, "beside")) * time.Microsecond
		case actSweep, actList:
			s.limit = rapid.SampledFrom([]int{100, 1, 2}).Draw(t, "limit")
			s.state = reservation.State(rapid.IntRange(0, 5).Draw(t, "state"))
		}
		return s
	})
}

// aPlace prefers the first ones.
func aPlace(t *rapid.T) int {
	return rapid.SampledFrom([]int{0, 0, 0, 0, 1, 1, 2, 3, 4, 5}).Draw(t, "place")
}

// The kinds of orders.
const (
	orderReserve  = "reserve"
	orderExtend   = "extend"
	orderComplete = "complete"
	orderFail     = "fail"
	orderResolve  = "resolve"
	orderErase    = "erase"
	orderLookup   = "lookup"
)

func orders() *rapid.Generator[order] {
	kinds := []string{
		orderReserve, orderReserve, orderReserve, orderExtend, orderComplete, orderComplete, orderFail, orderFail,
		orderResolve, orderLookup, orderErase,
	}
	return rapid.Custom(func(t *rapid.T) order {
		o := order{
			bodies: rapid.SampledFrom([]bodies{keepBodies, keepBodies, keepBodies, ageBodies, dropBodies}).Draw(t, "bodies"),
			kind:   rapid.SampledFrom(kinds).Draw(t, "kind"), place: aPlace(t),
			caller:  rapid.IntRange(0, callers-1).Draw(t, "caller"),
			variant: rapid.IntRange(0, 5).Draw(t, "variant"),
		}
		switch o.kind {
		case orderReserve:
			o.edits = rapid.SliceOfNDistinct(rapid.SampledFrom(reserveEdits()), 0, 4, rapid.ID[string]).Draw(t, "edits")
		case orderExtend, orderFail:
			o.duration = rapid.SampledFrom([]time.Duration{reservation.MinLease + 1, time.Second - 1, Lease, time.Hour}).Draw(t, "duration")
		case orderResolve, orderErase:
			o.version = int64(rapid.SampledFrom([]int{0, 0, 0, -1, 1}).Draw(t, "version"))
		}
		return o
	})
}
