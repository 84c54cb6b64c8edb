package grpcserver

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/access"
	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/storetest"
)

// desk is an operator's service that can be called as anybody.
func desk(t *testing.T, h *storetest.Harness) *operator {
	t.Helper()
	e, err := engine.New(engine.Options{Store: h.Store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return &operator{engine: e}
}

func as(t *testing.T, name string, tenants ...string) context.Context {
	return context.WithValue(t.Context(), identityKey{}, &access.Identity{
		Name: name, Roles: access.Operator, Tenants: tenants, AllTenants: len(tenants) == 0,
	})
}

// fill makes a finished and an unresolved record in each tenant, and erases the former.
func fill(t *testing.T, h *storetest.Harness, s *operator, tenants ...string) {
	t.Helper()
	for _, tenant := range tenants {
		done := reservation.Address{Tenant: tenant, Namespace: "payments", Key: "done-" + tenant}
		open := reservation.Address{Tenant: tenant, Namespace: "payments", Key: "open-" + tenant}
		for _, c := range []reservation.Command{
			storetest.Reserve(done, 1), storetest.Complete(done, 1, "secret of "+tenant),
			storetest.Reserve(open, 1), storetest.Fail(open, 1, reservation.ToldUnknown, "secret of "+tenant),
		} {
			if err, refused := h.Store.Apply(t.Context(), []reservation.Command{c})[0].(*reservation.Error); refused {
				t.Fatal(err)
			}
		}
		if _, err := s.EraseResult(as(t, "olga of "+tenant, tenant), &idemdv1.EraseResultRequest{
			Tenant: tenant, Namespace: "payments", Key: done.Key, Reason: "request of " + tenant,
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever is asked for, by whatever filter and page, an operator of some tenants is told
// nothing of the others.
func TestOperatorsReadNothingOfForeignTenants(t *testing.T) {
	h := storetest.OpenMem(t)
	s := desk(t, h)
	fill(t, h, s, "acme", "other", "third")
	ctx := as(t, "olga", "acme", "third")
	read := func(asked context.Context, list *idemdv1.ListReservationsRequest, audit *idemdv1.ListAuditRequest, stats *idemdv1.GetStatsRequest) (all string, pages []string) {
		t.Helper()
		for more := true; more; more = list.GetPageToken() != "" {
			page, err := s.ListReservations(asked, list)
			if err != nil {
				t.Fatal(err)
			}
			all += fmt.Sprint(page.GetReservations())
			list.PageToken = page.GetNextPageToken()
			pages = append(pages, list.PageToken)
		}
		for more := true; more; more = audit.GetPageToken() != "" {
			page, err := s.ListAudit(asked, audit)
			if err != nil {
				t.Fatal(err)
			}
			all += fmt.Sprint(page.GetEntries())
			audit.PageToken = page.GetNextPageToken()
		}
		counted, err := s.GetStats(asked, stats)
		if err != nil {
			t.Fatal(err)
		}
		return all + fmt.Sprint(counted), pages
	}
	for _, tenant := range []string{"", "acme", "other"} {
		all, _ := read(ctx, &idemdv1.ListReservationsRequest{Tenant: tenant, PageSize: 1},
			&idemdv1.ListAuditRequest{Tenant: tenant, PageSize: 1}, &idemdv1.GetStatsRequest{Tenant: tenant})
		if strings.Contains(all, "other") {
			t.Errorf("tenant %q: read was %s", tenant, all)
		}
		if sees := tenant != "other"; strings.Contains(all, "acme") != sees || strings.Contains(all, "third") != (tenant == "") {
			t.Errorf("tenant %q: read was %s", tenant, all)
		}
		if strings.Contains(all, "finished_estimate") {
			t.Errorf("an operator of some tenants is told how much all have: %s", all)
		}
	}
	// A page that somebody with more rights was given is no way in.
	_, pages := read(as(t, "root"), &idemdv1.ListReservationsRequest{PageSize: 1}, &idemdv1.ListAuditRequest{}, &idemdv1.GetStatsRequest{})
	for _, token := range pages[:len(pages)-1] {
		_, err := s.ListReservations(ctx, &idemdv1.ListReservationsRequest{PageSize: 1, PageToken: token})
		wantReason(t, err, codes.InvalidArgument, reservation.PageInvalid)
	}
	root, err := s.GetStats(as(t, "root"), &idemdv1.GetStatsRequest{})
	if err != nil || len(root.GetNamespaces()) != 3 || root.FinishedEstimate == nil {
		t.Errorf("who sees all tenants is told %v (%v)", root, err)
	}
}

func TestAPageTokenBelongsToItsQuery(t *testing.T) {
	h := storetest.OpenMem(t)
	s := desk(t, h)
	fill(t, h, s, "acme", "other")
	ctx := as(t, "root")
	base := &idemdv1.ListReservationsRequest{PageSize: 1}
	first, err := s.ListReservations(ctx, base)
	if err != nil || first.GetNextPageToken() == "" {
		t.Fatalf("%v (%v)", first, err)
	}
	for name, change := range map[string]func(*idemdv1.ListReservationsRequest){
		"tenant":    func(r *idemdv1.ListReservationsRequest) { r.Tenant = "acme" },
		"namespace": func(r *idemdv1.ListReservationsRequest) { r.Namespace = "payments" },
		"state":     func(r *idemdv1.ListReservationsRequest) { r.State = idemdv1.State_STATE_UNKNOWN },
		"prefix":    func(r *idemdv1.ListReservationsRequest) { r.KeyPrefix = "d" },
		"owner":     func(r *idemdv1.ListReservationsRequest) { r.Owner = "caller-1" },
		"time":      func(r *idemdv1.ListReservationsRequest) { r.ReservedAfter = protoTime(1) },
		"made up":   func(r *idemdv1.ListReservationsRequest) { r.PageToken = "bm9uc2Vuc2U" },
		"cut":       func(r *idemdv1.ListReservationsRequest) { r.PageToken = r.PageToken[:20] },
	} {
		r := proto.CloneOf(base)
		r.PageToken = first.GetNextPageToken()
		change(r)
		if _, err := s.ListReservations(ctx, r); err == nil {
			t.Errorf("%s: another query goes on with the token", name)
		} else {
			wantReason(t, err, codes.InvalidArgument, reservation.PageInvalid)
		}
	}
	base.PageToken, base.PageSize = first.GetNextPageToken(), 1000 // its size may change
	rest, err := s.ListReservations(ctx, base)
	if err != nil || len(rest.GetReservations()) != 3 || rest.GetNextPageToken() != "" {
		t.Errorf("the rest is %v (%v)", rest, err)
	}
	_, err = s.ListAudit(ctx, &idemdv1.ListAuditRequest{PageToken: first.GetNextPageToken()})
	wantReason(t, err, codes.InvalidArgument, reservation.PageInvalid)
}

func TestWhatOperatorsAskForIsChecked(t *testing.T) {
	s := desk(t, storetest.OpenMem(t))
	ctx := as(t, "root")
	list := func(edit func(*idemdv1.ListReservationsRequest)) error {
		r := &idemdv1.ListReservationsRequest{}
		edit(r)
		_, err := s.ListReservations(ctx, r)
		return err
	}
	long := strings.Repeat("x", 2000)
	for want, err := range map[reservation.Reason]error{
		reservation.TenantInvalid:    list(func(r *idemdv1.ListReservationsRequest) { r.Tenant = "ACME" }),
		reservation.NamespaceInvalid: list(func(r *idemdv1.ListReservationsRequest) { r.Namespace = "a b" }),
		reservation.KeyInvalid:       list(func(r *idemdv1.ListReservationsRequest) { r.KeyPrefix = "a b" }),
		reservation.LabelInvalid:     list(func(r *idemdv1.ListReservationsRequest) { r.Owner = long }),
		reservation.EnumInvalid:      list(func(r *idemdv1.ListReservationsRequest) { r.State = 9 }),
		reservation.PageInvalid:      list(func(r *idemdv1.ListReservationsRequest) { r.PageSize = -1 }),
	} {
		wantReason(t, err, codes.InvalidArgument, want)
	}
	_, err := s.ListAudit(ctx, &idemdv1.ListAuditRequest{Actor: long})
	wantReason(t, err, codes.InvalidArgument, reservation.LabelInvalid)
	_, err = s.EraseResult(ctx, &idemdv1.EraseResultRequest{Tenant: "acme", Key: "k"})
	wantReason(t, err, codes.InvalidArgument, reservation.LabelInvalid) // without a reason
	_, err = s.EraseResult(ctx, &idemdv1.EraseResultRequest{Tenant: "acme", Key: "k", Reason: "r"})
	wantReason(t, err, codes.NotFound, reservation.NotFound)
}

// Who did what stands in the audit, with the name that the identity has; and no list shows
// a body.
func TestWhatOperatorsDidIsShownWithTheirNames(t *testing.T) {
	h := storetest.OpenMem(t)
	s := desk(t, h)
	fill(t, h, s, "acme")
	ctx := as(t, "bob", "acme")
	listed, err := s.ListReservations(ctx, &idemdv1.ListReservationsRequest{State: idemdv1.State_STATE_UNKNOWN})
	if err != nil || len(listed.GetReservations()) != 1 || listed.GetReservations()[0].GetUnresolvedSince() == nil {
		t.Fatalf("%v (%v)", listed, err)
	}
	if strings.Contains(fmt.Sprint(listed), "secret") {
		t.Errorf("a list shows a body: %v", listed)
	}
	_, err = s.Resolve(ctx, &idemdv1.ResolveRequest{
		Tenant: "acme", Namespace: "payments", Key: "open-acme", ExpectedVersion: listed.GetReservations()[0].GetVersion(),
		Verdict: idemdv1.Verdict_VERDICT_NOT_EXECUTED, Reason: "asked the bank", Evidence: "statement 17",
	})
	if err != nil {
		t.Fatal(err)
	}
	audit, err := s.ListAudit(ctx, &idemdv1.ListAuditRequest{})
	if err != nil || len(audit.GetEntries()) != 2 {
		t.Fatalf("%v (%v)", audit, err)
	}
	resolved, erased := audit.GetEntries()[0], audit.GetEntries()[1]
	if resolved.GetActor() != "bob" || resolved.GetAct() != idemdv1.OperatorAct_OPERATOR_ACT_RESOLVE || resolved.GetEvidence() != "statement 17" ||
		resolved.GetStateBefore() != idemdv1.State_STATE_UNKNOWN || resolved.GetStateAfter() != idemdv1.State_STATE_FAILED_RETRYABLE ||
		resolved.GetVerdict() != idemdv1.Verdict_VERDICT_NOT_EXECUTED {
		t.Errorf("kept is %v", resolved)
	}
	if erased.GetActor() != "olga of acme" || erased.GetAct() != idemdv1.OperatorAct_OPERATOR_ACT_ERASE || erased.GetReason() != "request of acme" {
		t.Errorf("kept is %v", erased)
	}
}

// The largest page there can be fits in what a client takes by default.
func TestTheLargestPageFitsInAClientsDefaultLimit(t *testing.T) {
	f := serve(t, nil)
	ctx := t.Context()
	name := func(n int, bytes int) string { return fmt.Sprintf("%0*d", bytes, n) }
	commands := make([]reservation.Command, 0, 3000)
	for n := range 1000 {
		a := reservation.Address{Tenant: name(1, 64), Namespace: name(n, 64), Key: name(n, 255)}
		reserve := storetest.Reserve(a, n)
		reserve.Owner, reserve.PolicyVersion = name(n, 128), name(n, 64)
		erase := storetest.Erase(a)
		erase.Actor, erase.Reason = name(n, 256), name(n, 512)
		commands = append(commands, reserve, storetest.Complete(a, n, ""), erase)
	}
	f.harness.Store.Apply(ctx, commands)
	limited := grpc.MaxCallRecvMsgSize(4 << 20)
	listed, err := f.operator.ListReservations(ctx, &idemdv1.ListReservationsRequest{PageSize: 5000}, limited)
	if err != nil || len(listed.GetReservations()) != 1000 {
		t.Errorf("listed are %d (%v)", len(listed.GetReservations()), err)
	}
	audit, err := f.operator.ListAudit(ctx, &idemdv1.ListAuditRequest{PageSize: 5000}, limited)
	if err != nil || len(audit.GetEntries()) != 1000 {
		t.Errorf("acts are %d (%v)", len(audit.GetEntries()), err)
	}
}
