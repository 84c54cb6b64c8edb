package daemon

import (
	"cmp"
	"slices"
	"sync"

	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/store"
)

// How many namespaces have labels of their own in metrics: those that are found in use, and
// with those that are configured. A name goes only with the daemon.
const (
	maxScopesInUse = 1000
	maxScopes      = 2 * maxScopesInUse
)

// otherScope is the label of all namespaces beyond. No tenant can have this name.
func otherScope() store.Scope { return store.Scope{Tenant: "(other)", Namespace: "(other)"} }

// scopes says which namespaces have labels of their own.
type scopes struct {
	mu    sync.RWMutex
	known map[store.Scope]struct{}
}

func newScopes() *scopes { return &scopes{known: make(map[store.Scope]struct{})} }

// configure gives labels to the namespaces that are configured, and the default one of each
// tenant, while there is room.
func (s *scopes) configure(policies engine.Policies) {
	var named []store.Scope
	for scope := range policies.Namespaces {
		named = append(named, store.Scope{Tenant: scope.Tenant, Namespace: scope.Namespace})
	}
	for tenant, of := range policies.Tenants {
		if !of.OnlyNamed {
			named = append(named, store.Scope{Tenant: tenant, Namespace: "default"})
		}
	}
	slices.SortFunc(named, func(a, b store.Scope) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Namespace, b.Namespace))
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, scope := range named {
		s.add(scope, maxScopes)
	}
}

// label is a namespace's label. One that is proven to be in use gets its own, while there is
// room; names that anybody can make up don't take it.
func (s *scopes) label(scope store.Scope, used bool) store.Scope {
	s.mu.RLock()
	_, is := s.known[scope]
	s.mu.RUnlock()
	if !is && used {
		s.mu.Lock()
		is = s.add(scope, maxScopesInUse)
		s.mu.Unlock()
	}
	if is {
		return scope
	}
	return otherScope()
}

// add tells whether a namespace has a label now. The lock is held.
func (s *scopes) add(scope store.Scope, room int) bool {
	if _, is := s.known[scope]; is {
		return true
	}
	if len(s.known) >= room {
		return false
	}
	s.known[scope] = struct{}{}
	return true
}
