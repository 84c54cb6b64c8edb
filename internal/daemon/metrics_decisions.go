package daemon

import (
	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// decided counts an answer.
func (m *metrics) decided(command reservation.Command, outcome reservation.Outcome) {
	refusal, refused := outcome.(*reservation.Error)
	// Names in what is refused may be anything.
	scope := m.scopes.label(store.ScopeOf(command.Target()), !refused)
	m.decisions.WithLabelValues(scope.Tenant, scope.Namespace, decisionName(outcome)).Inc()
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

// decisionName is bounded: kinds of outcomes, and reasons.
func decisionName(outcome reservation.Outcome) string {
	switch o := outcome.(type) {
	case *reservation.Owned:
		if o.Repeated {
			return "OWNED_AGAIN"
		}
		return "OWNED"
	case *reservation.InProgress:
		return "IN_PROGRESS"
	case *reservation.Replay:
		return "REPLAY"
	case *reservation.Unresolved:
		return "UNRESOLVED"
	case *reservation.Extended:
		return "EXTENDED"
	case *reservation.Recorded:
		return "RECORDED"
	case *reservation.Found:
		return "FOUND"
	case *reservation.Error:
		return string(o.Reason)
	}
	return "OTHER"
}
