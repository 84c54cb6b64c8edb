package store

import "context"

// Sharer is what a store is that several daemons may use at the same time: they share what
// quotas allow, by what each is asked for.
type Sharer interface {
	// Share tells the demand that a daemon has for quotas of scopes, in Reserves a second,
	// and returns what is known of all daemons that told theirs within the last
	// ShareWindow. A scope without a namespace is a tenant. Daemons call it every second
	// while they run; names are theirs, and unique. Error: STORE_UNAVAILABLE.
	Share(ctx context.Context, daemon string, demand map[Scope]float64) (Demand, error)
}

// ShareWindow is after how many seconds of silence a daemon's share is the others'.
const ShareWindow = 5

// Demand is what all daemons together are asked for.
type Demand struct {
	// Daemons is how many there are: the one that asked is among them.
	Daemons int
	// Scopes are the demands of all daemons together; none = nobody told any.
	Scopes map[Scope]float64
}
