package daemon

import (
	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// decided counts an answer.
func (m *metrics) decided(command reservation.Command, outcome reservation.Outcome) {
	refusal, refused := outcome.(*reservation.Error)
	// Names in what is refused may be anything.
	scope := m.scopes.label(store.ScopeOf(command.Target()), !refused)
	m.decisions.WithLabelValues(scope.Tenant, scope.Namespace, engine.DecisionName(outcome)).Inc()
	if !refused {
		return
	}
	m.refused(refusal.Reason)
	if refusal.Reason == reservation.StaleToken || refusal.Reason == reservation.AlreadyFinished {
		switch command.(type) {
		case *reservation.Complete, *reservation.Fail:
			m.stale.WithLabelValues(string(refusal.Reason)).Inc()
		}
	}
}

// refused counts a refusal; those before the engine come from whoever made them.
func (m *metrics) refused(reason reservation.Reason) {
	m.refusals.WithLabelValues(string(reason)).Inc()
}
