package grpcserver

import (
	"context"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
)

// operator serves OperatorService.
type operator struct {
	idemdv1.UnimplementedOperatorServiceServer
	engine *engine.Engine
}

// Resolve implements idemdv1.OperatorServiceServer.
func (s *operator) Resolve(ctx context.Context, r *idemdv1.ResolveRequest) (*idemdv1.ResolveResponse, error) {
	o, err := run[*reservation.Recorded](ctx, s.engine, resolveOf(r, identityOf(ctx).Name))
	if err != nil {
		return nil, err
	}
	return &idemdv1.ResolveResponse{Version: o.Version, Repeated: o.Repeated}, nil
}

// EraseResult implements idemdv1.OperatorServiceServer.
func (s *operator) EraseResult(ctx context.Context, r *idemdv1.EraseResultRequest) (*idemdv1.EraseResultResponse, error) {
	o, err := run[*reservation.Recorded](ctx, s.engine, &reservation.Erase{
		Address: addressOf(r), ExpectedVersion: r.GetExpectedVersion(), Actor: identityOf(ctx).Name, Reason: r.GetReason(),
	})
	if err != nil {
		return nil, err
	}
	return &idemdv1.EraseResultResponse{Version: o.Version, Repeated: o.Repeated}, nil
}

// ListReservations implements idemdv1.OperatorServiceServer.
func (s *operator) ListReservations(ctx context.Context, r *idemdv1.ListReservationsRequest) (*idemdv1.ListReservationsResponse, error) {
	listed, err := s.engine.List(ctx, engine.Listing{
		Tenants: visibleTo(ctx),
		Filter: reservation.Filter{
			Tenant: r.GetTenant(), Namespace: r.GetNamespace(), KeyPrefix: r.GetKeyPrefix(), Owner: r.GetOwner(),
			From: timeOf(r.GetReservedAfter()), To: timeOf(r.GetReservedBefore()),
		},
		State: stateOf(r.GetState()), PageSize: int(r.GetPageSize()), PageToken: r.GetPageToken(),
	})
	if err != nil {
		return nil, statusOf(err)
	}
	response := &idemdv1.ListReservationsResponse{NextPageToken: listed.NextPageToken}
	for _, entry := range listed.Entries {
		response.Reservations = append(response.Reservations, protoListed(entry.Address, entry.Record, listed.Now))
	}
	return response, nil
}

// GetStats implements idemdv1.OperatorServiceServer.
func (s *operator) GetStats(ctx context.Context, r *idemdv1.GetStatsRequest) (*idemdv1.GetStatsResponse, error) {
	filter := reservation.Filter{Tenant: r.GetTenant(), Namespace: r.GetNamespace()}
	if refusal := filter.Validate(); refusal != nil {
		return nil, statusOf(refusal)
	}
	stats, err := s.engine.Stats(ctx)
	if err != nil {
		return nil, statusOf(err)
	}
	tenants := visibleTo(ctx)
	response := &idemdv1.GetStatsResponse{CountedAt: protoTime(stats.Now), Truncated: stats.Cut}
	if tenants == nil && filter == (reservation.Filter{}) {
		response.FinishedEstimate = &stats.Finished
	}
	for _, of := range engine.StatsOf(stats, tenants, filter) {
		response.Namespaces = append(response.Namespaces, &idemdv1.NamespaceStats{
			Tenant: of.Scope.Tenant, Namespace: of.Scope.Namespace, Live: of.Live, Lapsed: of.Lapsed, Unknown: of.Unknown,
			OldestUnresolvedSince: protoTime(of.OldestUnresolved), OldestUnresolvedKey: of.OldestKey,
		})
	}
	return response, nil
}

// ListAudit implements idemdv1.OperatorServiceServer.
func (s *operator) ListAudit(ctx context.Context, r *idemdv1.ListAuditRequest) (*idemdv1.ListAuditResponse, error) {
	listed, err := s.engine.Audit(ctx, engine.AuditListing{
		Tenants: visibleTo(ctx),
		Filter: reservation.Filter{
			Tenant: r.GetTenant(), Namespace: r.GetNamespace(), Key: r.GetKey(), Actor: r.GetActor(),
			From: timeOf(r.GetAfter()), To: timeOf(r.GetBefore()),
		},
		PageSize: int(r.GetPageSize()), PageToken: r.GetPageToken(),
	})
	if err != nil {
		return nil, statusOf(err)
	}
	response := &idemdv1.ListAuditResponse{NextPageToken: listed.NextPageToken}
	for i := range listed.Entries {
		response.Entries = append(response.Entries, protoAct(&listed.Entries[i]))
	}
	return response, nil
}

// stateOf is the state that a list selects; unset = all.
func stateOf(state idemdv1.State) reservation.State {
	if state < 0 || state > idemdv1.State_STATE_UNKNOWN {
		return invalidEnum
	}
	return reservation.State(state)
}

// protoListed is an entry of a list; of a damaged record it is the address.
func protoListed(a reservation.Address, rec *reservation.Record, now reservation.Time) *idemdv1.Reservation {
	if rec == nil {
		return &idemdv1.Reservation{Tenant: a.Tenant, Namespace: a.Namespace, Key: a.Key}
	}
	return protoReservation(a, &reservation.Found{Record: rec, Shown: rec.Shown(now), Now: now})
}

// protoAct relies on both sides numbering acts, states and verdicts alike, which a test
// holds.
func protoAct(e *reservation.AuditEntry) *idemdv1.AuditEntry {
	entry := &idemdv1.AuditEntry{
		Id: e.ID, At: protoTime(e.At), Actor: e.Actor, Act: idemdv1.OperatorAct(e.Act),
		Tenant: e.Tenant, Namespace: e.Namespace, Key: e.Key,
		StateBefore: protoState(e.Before.State), VersionBefore: e.Before.Version,
		StateAfter: protoState(e.After.State), VersionAfter: e.After.Version,
		Verdict: idemdv1.Verdict(e.Verdict), Reason: e.Reason, Evidence: e.Evidence,
	}
	if e.ResultDigest != (reservation.ResultDigest{}) {
		entry.ResultDigest = e.ResultDigest[:]
	}
	return entry
}
