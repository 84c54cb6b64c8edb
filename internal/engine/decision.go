package engine

import "github.com/idemd/idemd/internal/reservation"

// DecisionName names an answer in metrics and traces. There is a bounded number of names:
// kinds of outcomes, and reasons.
func DecisionName(outcome reservation.Outcome) string {
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
