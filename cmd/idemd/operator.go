package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// scopeFlags select; unset = all that the caller may see.
type scopeFlags struct {
	Tenant    string `short:"t" help:"Only this tenant's. Default: all that you may see."`
	Namespace string `short:"n" help:"Only this namespace's. Default: all."`
}

// pageFlags say how much to show.
type pageFlags struct {
	PageSize  int32  `default:"100" help:"Entries of a page, up to 1000."`
	PageToken string `help:"Where to go on: what the page before said." placeholder:"TOKEN"`
	All       bool   `help:"Show all pages, one after the other."`
}

// paged is one page of a list.
type paged interface {
	proto.Message
	GetNextPageToken() string
}

// pages shows one page, or all. With -o json each is a document of its own.
func (f pageFlags) pages(std streams, client clientFlags, read func(context.Context, *grpc.ClientConn, string) (paged, [][]string, error), header ...string) error {
	lines, token := newLines(std.out, header...), f.PageToken
	for {
		err := client.dialled(func(ctx context.Context, conn *grpc.ClientConn) error {
			page, rows, err := read(ctx, conn, token)
			if err != nil {
				return err
			}
			token = page.GetNextPageToken()
			if client.Output == "json" {
				return show(std, client.Output, page, nil)
			}
			return lines.print(rows)
		})
		switch {
		case err != nil:
			return err
		case token == "":
			return nil
		case !f.All:
			if client.Output != "json" {
				_, err = fmt.Fprintf(std.err, "there is more: --all, or --page-token %s\n", token)
			}
			return err
		}
	}
}

type listCmd struct {
	clientFlags
	scopeFlags
	pageFlags
	State          string    `enum:",processing,succeeded,failed-final,failed-retryable,unknown" default:"" help:"Only what stands there: processing, succeeded, failed-final, failed-retryable, or unknown (all that is unresolved)."`
	Prefix         string    `help:"Only keys that begin with this."`
	Owner          string    `help:"Only what this owner had last."`
	ReservedAfter  time.Time `help:"Only what was first reserved then or later (RFC 3339)." placeholder:"TIME"`
	ReservedBefore time.Time `help:"Only what was first reserved before (RFC 3339)." placeholder:"TIME"`
}

// Run implements the command.
func (c *listCmd) Run(std streams) error {
	request := &idemdv1.ListReservationsRequest{
		Tenant: c.Tenant, Namespace: c.Namespace, KeyPrefix: c.Prefix, Owner: c.Owner, PageSize: c.PageSize,
		State:         idemdv1.State(idemdv1.State_value["STATE_"+strings.ToUpper(strings.ReplaceAll(c.State, "-", "_"))]),
		ReservedAfter: timestamp(c.ReservedAfter), ReservedBefore: timestamp(c.ReservedBefore),
	}
	return c.pages(std, c.clientFlags, func(ctx context.Context, conn *grpc.ClientConn, token string) (paged, [][]string, error) {
		request.PageToken = token
		response, err := idemdv1.NewOperatorServiceClient(conn).ListReservations(ctx, request)
		return response, reservationLines(response.GetReservations()), err
	}, "TENANT", "NAMESPACE", "KEY", "STATE", "SINCE", "ATTEMPT", "OWNER", "VERSION")
}

func reservationLines(reservations []*idemdv1.Reservation) (rows [][]string) {
	for _, r := range reservations {
		state := short(r.GetState(), "STATE_")
		if r.GetState() == idemdv1.State_STATE_UNSPECIFIED {
			state = "DAMAGED"
		}
		since := r.GetReservedAt()
		for _, at := range []*timestamppb.Timestamp{r.GetFinishedAt(), r.GetUnresolvedSince()} {
			if at != nil {
				since = at
			}
		}
		rows = append(rows, []string{
			r.GetTenant(), r.GetNamespace(), r.GetKey(), state, clock(since),
			fmt.Sprint(r.GetAttempt()), r.GetOwner(), fmt.Sprint(r.GetVersion()),
		})
	}
	return rows
}

type statsCmd struct {
	clientFlags
	scopeFlags
}

// Run implements the command.
func (c *statsCmd) Run(std streams) error {
	return c.counted(std, c.clientFlags, func(response *idemdv1.GetStatsResponse) error {
		lines := newLines(std.out, "TENANT", "NAMESPACE", "LIVE", "LAPSED", "UNRESOLVED", "OLDEST SINCE", "OLDEST KEY")
		var rows [][]string
		for _, n := range response.GetNamespaces() {
			rows = append(rows, []string{
				n.GetTenant(), n.GetNamespace(), fmt.Sprint(n.GetLive()), fmt.Sprint(n.GetLapsed()), fmt.Sprint(n.GetUnknown()),
				clock(n.GetOldestUnresolvedSince()), n.GetOldestUnresolvedKey(),
			})
		}
		if err := lines.print(rows); err != nil {
			return err
		}
		return sayOldest(std, response)
	})
}

// counted asks for the counts and shows them.
func (f scopeFlags) counted(std streams, client clientFlags, table func(*idemdv1.GetStatsResponse) error) error {
	return client.dialled(func(ctx context.Context, conn *grpc.ClientConn) error {
		response, err := idemdv1.NewOperatorServiceClient(conn).GetStats(ctx, &idemdv1.GetStatsRequest{Tenant: f.Tenant, Namespace: f.Namespace})
		switch {
		case err != nil:
			return err
		case client.Output == "json":
			return show(std, client.Output, response, nil)
		}
		return table(response)
	})
}

// sayOldest names the unresolved operation that has waited longest, and how to look at it.
func sayOldest(std streams, response *idemdv1.GetStatsResponse) error {
	var oldest *idemdv1.NamespaceStats
	for _, n := range response.GetNamespaces() {
		at := n.GetOldestUnresolvedSince()
		if at != nil && (oldest == nil || at.AsTime().Before(oldest.GetOldestUnresolvedSince().AsTime())) {
			oldest = n
		}
	}
	if oldest == nil {
		said := "\nnothing is unresolved"
		if response.GetTruncated() {
			said = "\nnothing is unresolved in these namespaces, but there are more of them than are counted: ask for a tenant or a namespace"
		}
		_, err := fmt.Fprintln(std.out, said)
		return err
	}
	age := response.GetCountedAt().AsTime().Sub(oldest.GetOldestUnresolvedSince().AsTime()).Round(time.Second)
	_, err := fmt.Fprintf(std.out, "\nunresolved for %v: idemd lookup --tenant %s --namespace %s -- %s\n",
		age, oldest.GetTenant(), oldest.GetNamespace(), shellQuoted(oldest.GetOldestUnresolvedKey()))
	return err
}

// shellQuoted is a key as one word of a command: callers choose keys, and operators paste.
func shellQuoted(key string) string {
	harmless := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if !strings.ContainsFunc(key, func(r rune) bool { return !harmless(r) }) {
		return key
	}
	return "'" + strings.ReplaceAll(key, "'", `'\''`) + "'"
}

type tenantsCmd struct {
	clientFlags
}

// Run implements the command.
func (c *tenantsCmd) Run(std streams) error {
	return scopeFlags{}.counted(std, c.clientFlags, func(response *idemdv1.GetStatsResponse) error {
		sums := map[string]*idemdv1.NamespaceStats{}
		namespaces := map[string][]string{}
		for _, n := range response.GetNamespaces() {
			tenant := n.GetTenant()
			if sums[tenant] == nil {
				sums[tenant] = &idemdv1.NamespaceStats{Tenant: tenant}
			}
			sums[tenant].Live += n.GetLive()
			sums[tenant].Lapsed += n.GetLapsed()
			sums[tenant].Unknown += n.GetUnknown()
			namespaces[tenant] = append(namespaces[tenant], n.GetNamespace())
		}
		var rows [][]string
		for tenant, sum := range sums {
			rows = append(rows, []string{
				tenant, fmt.Sprint(sum.GetLive()), fmt.Sprint(sum.GetLapsed()), fmt.Sprint(sum.GetUnknown()), strings.Join(namespaces[tenant], " "),
			})
		}
		slices.SortFunc(rows, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
		return newLines(std.out, "TENANT", "LIVE", "LAPSED", "UNRESOLVED", "NAMESPACES").print(rows)
	})
}

type eraseCmd struct {
	clientFlags
	addressFlags
	ExpectedVersion int64  `help:"Only in this version, as lookup shows it. Default: in any."`
	Reason          string `required:"" help:"Why; kept for good, so without the person's data."`
}

// Run implements the command.
func (c *eraseCmd) Run(std streams) error {
	return call(c.clientFlags, std, idemdv1.NewOperatorServiceClient, idemdv1.OperatorServiceClient.EraseResult, &idemdv1.EraseResultRequest{
		Tenant: c.Tenant, Namespace: c.Namespace, Key: c.Key, ExpectedVersion: c.ExpectedVersion, Reason: c.Reason,
	})
}

type auditCmd struct {
	clientFlags
	scopeFlags
	pageFlags
	Key    string    `help:"Only about this key."`
	Actor  string    `help:"Only what this one did."`
	After  time.Time `help:"Only then or later (RFC 3339)." placeholder:"TIME"`
	Before time.Time `help:"Only before (RFC 3339)." placeholder:"TIME"`
}

// Run implements the command.
func (c *auditCmd) Run(std streams) error {
	request := &idemdv1.ListAuditRequest{
		Tenant: c.Tenant, Namespace: c.Namespace, Key: c.Key, Actor: c.Actor, PageSize: c.PageSize,
		After: timestamp(c.After), Before: timestamp(c.Before),
	}
	return c.pages(std, c.clientFlags, func(ctx context.Context, conn *grpc.ClientConn, token string) (paged, [][]string, error) {
		request.PageToken = token
		response, err := idemdv1.NewOperatorServiceClient(conn).ListAudit(ctx, request)
		return response, auditLines(response.GetEntries()), err
	}, "ID", "AT", "ACTOR", "ACT", "TENANT", "NAMESPACE", "KEY", "BEFORE", "AFTER", "REASON", "EVIDENCE")
}

func auditLines(entries []*idemdv1.AuditEntry) (rows [][]string) {
	for _, e := range entries {
		rows = append(rows, []string{
			fmt.Sprint(e.GetId()), clock(e.GetAt()), e.GetActor(), short(e.GetAct(), "OPERATOR_ACT_"),
			e.GetTenant(), e.GetNamespace(), e.GetKey(),
			short(e.GetStateBefore(), "STATE_"), short(e.GetStateAfter(), "STATE_"), e.GetReason(), e.GetEvidence(),
		})
	}
	return rows
}

// timestamp is unset where the flag is.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
