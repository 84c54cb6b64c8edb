package engine

import (
	"context"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// admission is whether a call may go to the store.
type admission struct {
	refusal *reservation.Error
	// entered are the quotas that count it from now on.
	entered [2]*quota
	// full is a quota that has no room for one more grant: what exists may be answered
	// all the same.
	full *quota
}

// admit completes a call by its namespace's policy and refuses what is wrong with it,
// what the policy does not allow, and what is over a quota. All of this comes before the
// queue: a refusal costs others nothing.
func (e *Engine) admit(ctx context.Context, command reservation.Command) admission {
	rules := e.rules.Load()
	admitted := rules.admit(command)
	switch c := command.(type) {
	case *reservation.Reserve:
		if admitted.full != nil {
			return e.relent(ctx, []*reservation.Reserve{c}, []admission{admitted})[0]
		}
	case *reservation.Resolve:
		if admitted.refusal == nil {
			admitted.refusal = e.settling(ctx, rules, c)
		}
	}
	return admitted
}

// admitAll is admit for many. Those over a quota of what may be live cost one read
// together.
func (e *Engine) admitAll(ctx context.Context, commands []reservation.Command) []admission {
	rules := e.rules.Load()
	admissions := make([]admission, len(commands))
	var over []int
	for i, command := range commands {
		if admissions[i] = rules.admit(command); admissions[i].full != nil {
			over = append(over, i)
		}
	}
	if len(over) == 0 {
		return admissions
	}
	reserves, full := make([]*reservation.Reserve, len(over)), make([]admission, len(over))
	for n, i := range over {
		reserves[n], full[n] = commands[i].(*reservation.Reserve), admissions[i]
	}
	for n, admitted := range e.relent(ctx, reserves, full) {
		admissions[over[n]] = admitted
	}
	return admissions
}

// ask is what a waiting call does when it is its turn: it was admitted when it came, but
// is counted only from now on.
func (e *Engine) ask(ctx, inTime context.Context, command reservation.Command) (reservation.Outcome, error) {
	if err := inTime.Err(); err != nil {
		return nil, err
	}
	var admitted admission
	if reserve, is := command.(*reservation.Reserve); is {
		if admitted = enter(e.rules.Load().of(command.Target())); admitted.full != nil {
			admitted = e.relent(inTime, []*reservation.Reserve{reserve}, []admission{admitted})[0]
		}
	}
	if admitted.refusal != nil {
		return admitted.refusal, nil
	}
	return e.run(ctx, inTime, command, admitted.entered)
}

func (r *rules) admit(command reservation.Command) admission {
	address := command.Target()
	policy, refusal := r.policies.For(address.Tenant, address.Namespace)
	if refusal == nil {
		refusal = policy.complete(command)
	}
	if refusal == nil {
		refusal = command.Validate()
	}
	if refusal != nil {
		return admission{refusal: refusal}
	}
	if _, is := command.(*reservation.Reserve); !is {
		return admission{}
	}
	quotas := r.of(address)
	if quotas == [2]*quota{} {
		return admission{}
	}
	if refusal := takeRate(quotas, time.Now()); refusal != nil {
		return admission{refusal: refusal}
	}
	return enter(quotas)
}

func enter(quotas [2]*quota) admission {
	if full := enterLive(quotas); full != nil {
		return admission{full: full}
	}
	return admission{entered: quotas}
}

// relent lets Reserves through, for which a quota has no room, if they are no new grants:
// what is stored already is answered, above all to an owner whose answer was lost.
func (e *Engine) relent(ctx context.Context, reserves []*reservation.Reserve, full []admission) []admission {
	if !e.relents.enter(ctx) {
		for i := range full {
			full[i] = admission{refusal: full[i].full.exceeded()}
		}
		return full
	}
	defer e.relents.leave()
	addresses := make([]reservation.Address, len(reserves))
	for i, r := range reserves {
		addresses[i] = r.Address
	}
	snapshot, err := e.read(ctx, addresses...)
	if err != nil {
		for i := range full {
			full[i] = admission{refusal: store.Unavailable()}
		}
		return full
	}
	records := make([]*reservation.Record, len(reserves))
	for _, found := range snapshot.Found {
		records[found.Index] = found.Record
	}
	for i, r := range reserves {
		_, outcome := reservation.Decide(snapshot.Now, records[i], r)
		if owned, granted := outcome.(*reservation.Owned); granted && !owned.Repeated {
			full[i].refusal = full[i].full.exceeded()
		}
	}
	return full
}

// settling refuses the verdict that an operation was not executed until its settle time
// is over. The verdict names the version that it is about, and since when it has been
// unresolved can't change without another version: so what is read here still holds when
// the verdict is applied, or that is refused.
func (e *Engine) settling(ctx context.Context, rules *rules, r *reservation.Resolve) *reservation.Error {
	policy, _ := rules.policies.For(r.Tenant, r.Namespace)
	if policy.Settle == 0 || r.Verdict != reservation.VerdictNotExecuted {
		return nil
	}
	snapshot, err := e.read(ctx, r.Address)
	if err != nil {
		return store.Unavailable()
	}
	for _, found := range snapshot.Found {
		if found.Record == nil || found.Record.Version != r.ExpectedVersion {
			continue // for the state machine to refuse
		}
		since := found.Record.UnresolvedSince(snapshot.Now)
		if since == 0 {
			// Still leased, and the lease to be broken: it has not even begun to settle.
			since = snapshot.Now
		}
		if rest := policy.Settle - snapshot.Now.Sub(since); rest > 0 && !found.Record.State.Finished() {
			return &reservation.Error{
				Reason: reservation.NotSettled, Field: "verdict", RetryAfter: rest,
				Message: "NOT_EXECUTED is taken only when the namespace's settle time is over: an owner that was slow, or its request, may still arrive",
			}
		}
	}
	return nil
}

// relents bounds what those cost who are over a quota: few reads at once, and few who wait
// for theirs. The others hear of the quota without a look; they are told to come back.
type relents struct {
	reads   chan struct{}
	waiting chan struct{}
}

const (
	relentReads   = 2
	relentWaiting = 256
)

func newRelents() relents {
	return relents{reads: make(chan struct{}, relentReads), waiting: make(chan struct{}, relentWaiting)}
}

func (r relents) enter(ctx context.Context) bool {
	select {
	case r.waiting <- struct{}{}:
	default:
		return false
	}
	defer func() { <-r.waiting }()
	select {
	case r.reads <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r relents) leave() { <-r.reads }

// readTimeout bounds a read before a call is admitted.
const readTimeout = 2 * time.Second

func (e *Engine) read(ctx context.Context, addresses ...reservation.Address) (store.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return e.store.Get(ctx, store.Want(addresses...))
}
