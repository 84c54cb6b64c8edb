package storetest

import (
	"slices"
	"strings"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// Defect is one way in which a store can be wrong. The suite must fail each.
type Defect string

// The defects.
const (
	None               Defect = ""
	ForgetsTokenCheck  Defect = "takes any token for the current one"
	ExpiresBySweep     Defect = "a record expires when it is swept, not when its retention is over"
	StaleTakeover      Defect = "takes over on a read from before the owner's last call"
	MixesTenants       Defect = "keeps one record for a key of two tenants"
	MixesNamespaces    Defect = "keeps one record for a key of two namespaces"
	FoldsKeyCase       Defect = "takes keys that differ in case for one"
	JoinsAddresses     Defect = "joins the parts of an address with a separator"
	ClockBeforeLock    Defect = "reads the clock before the record is held"
	DropsSecond        Defect = "drops a batch's second command on one address"
	ReversesBatch      Defect = "runs the commands on one address in reverse order"
	ForgetsFingerprint Defect = "does not compare fingerprints"
	SweepsOpen         Defect = "sweeps what is in progress or unknown"
	SweepsEarly        Defect = "sweeps within the retention"
	NeverSweeps        Defect = "never sweeps"
	LosesHistory       Defect = "does not store the history"
	LosesSpent         Defect = "forgets earlier tokens"
	LosesCheckpoint    Defect = "does not store checkpoints"
	CutsBodies         Defect = "keeps the first 64 KiB of a body"
	LeaseInMillis      Defect = "keeps times in milliseconds"
	ReusesFence        Defect = "starts a forgotten key's fence over"
	ListMixesTenants   Defect = "lists all tenants' records"
	IgnoresContext     Defect = "runs batches whose context has ended"
	ReadsBeforeLock    Defect = "writes by what it read before the record was held"
	StoresRefusals     Defect = "stores a record for whoever asks after one"
	LosesExtensions    Defect = "answers extensions without storing them"
	RepinsPolicy       Defect = "takes the policy version of the latest attempt"
	WaitsForRivals     Defect = "waits for a rival with the whole batch"
	HidesChanges       Defect = "takes whatever was seen once for unchanged"
	ShowsUnchanged     Defect = "reads what has not changed again and again"
	SkipsAtPages       Defect = "skips a record where a page begins"
	ListShowsExpired   Defect = "lists what has expired and is not swept yet"
	ListsResults       Defect = "lists results and histories too"
	IgnoresFilters     Defect = "lists whatever lies at the addresses"
	IgnoresPrefixes    Defect = "lists keys with other prefixes"
	MixesScopes        Defect = "counts all namespaces together"
	ForgetsActs        Defect = "does not keep the acts of operators"
	KeepsIdleActs      Defect = "keeps acts that have changed nothing"
	AuditMixesTenants  Defect = "shows the acts in all tenants"
	LosesErasure       Defect = "forgets that a result was erased"
	ErasesNothing      Defect = "keeps what is to be erased"
	LosesTrace         Defect = "forgets where the first attempt was traced"
	BodiesBySweep      Defect = "a body expires when it is swept, not when its time is over"
	StripsEarly        Defect = "takes bodies out before their time is over"
	NeverStrips        Defect = "never takes bodies out"
	LosesWhole         Defect = "forgets what was told when the body goes"
	StoresDropped      Defect = "stores bodies that are not to be stored"
)

// Defects lists all of them.
func Defects() []Defect {
	return []Defect{
		ForgetsTokenCheck, ExpiresBySweep, StaleTakeover, MixesTenants, MixesNamespaces, FoldsKeyCase,
		JoinsAddresses, ClockBeforeLock, DropsSecond, ReversesBatch, ForgetsFingerprint, SweepsOpen,
		SweepsEarly, NeverSweeps, LosesHistory, LosesSpent, LosesCheckpoint, CutsBodies, LeaseInMillis,
		ReusesFence, ListMixesTenants, IgnoresContext, ReadsBeforeLock,
		StoresRefusals, LosesExtensions, RepinsPolicy, WaitsForRivals, HidesChanges, ShowsUnchanged,
		SkipsAtPages, ListShowsExpired, ListsResults, IgnoresFilters, IgnoresPrefixes, MixesScopes,
		ForgetsActs, KeepsIdleActs, AuditMixesTenants, LosesErasure, ErasesNothing, LosesTrace,
		BodiesBySweep, StripsEarly, NeverStrips, LosesWhole, StoresDropped,
	}
}

// hides tells whether Get leaves a record out.
func (d Defect) hides(seen, is store.Seen) bool {
	switch d {
	case HidesChanges:
		return seen != store.Seen{}
	case ShowsUnchanged:
		return false
	}
	return seen == is && is != store.Seen{}
}

// address is where the record of an address is kept.
func (d Defect) address(a reservation.Address) reservation.Address {
	switch d {
	case MixesTenants:
		a.Tenant = ""
	case MixesNamespaces:
		a.Namespace = ""
	case FoldsKeyCase:
		a.Key = strings.ToLower(a.Key)
	case JoinsAddresses:
		a = reservation.Address{Key: a.Tenant + "." + a.Namespace + "." + a.Key}
	}
	return a
}

// waitsForRivals tells whether a batch waits for a held address.
func (d Defect) waitsForRivals() bool { return d == WaitsForRivals || d == ClockBeforeLock }

// group is the commands that are run.
func (d Defect) group(group store.Group, outcomes []reservation.Outcome) store.Group {
	switch d {
	case DropsSecond:
		group.Answer(store.Busy(), outcomes)
		for _, i := range group.Indexes[1:] {
			outcomes[i] = &reservation.Recorded{}
		}
		group.Indexes = group.Indexes[:1]
	case ReversesBatch:
		group.Indexes = slices.Clone(group.Indexes)
		slices.Reverse(group.Indexes)
	}
	return group
}

// before is the record that the commands meet.
func (d Defect) before(now reservation.Time, rec *reservation.Record) *reservation.Record {
	if rec == nil {
		return nil
	}
	changed := *rec
	switch {
	case d == ExpiresBySweep && rec.Expired(now):
		changed.ExpiresAt = now + 1
	case d == BodiesBySweep && rec.BodyExpired(now):
		result := *rec.Result
		result.BodyRetention = 0
		changed.Result = &result
	case d == StaleTakeover && rec.State.Finished() && !rec.Expired(now) && now >= rec.LeaseExpiresAt:
		changed.State, changed.FinishedAt, changed.ExpiresAt, changed.RetryAt = reservation.Processing, 0, 0, 0
	case d == ReusesFence && rec.Expired(now):
		return nil
	}
	return &changed
}

// fold runs the group's commands.
func (d Defect) fold(now reservation.Time, group store.Group, rec *reservation.Record, commands []reservation.Command, outcomes []reservation.Outcome) (*reservation.Record, []*reservation.AuditEntry) {
	var acts []*reservation.AuditEntry
	for _, i := range group.Indexes {
		met := d.meets(rec, commands[i])
		next, outcome := reservation.Decide(now, met, commands[i])
		outcomes[i] = outcome
		acts = append(acts, d.acts(now, commands[i], met, next)...)
		if next != met {
			rec = d.after(rec, next, commands[i])
		}
		if next == nil && d == StoresRefusals {
			rec = &reservation.Record{State: reservation.Processing}
		}
	}
	return rec, acts
}

// meets is the record that one command meets.
func (d Defect) meets(rec *reservation.Record, command reservation.Command) *reservation.Record {
	if rec == nil {
		return nil
	}
	changed := *rec
	switch c := command.(type) {
	case *reservation.Complete:
		if d == ForgetsTokenCheck {
			changed.Token = c.Token.Digest()
		}
		if d == StoresDropped {
			c.DropBody = false
		}
	case *reservation.Reserve:
		if d == ForgetsFingerprint {
			changed.Fingerprint = c.Fingerprint
		}
	}
	return &changed
}

// after is the record that is kept.
func (d Defect) after(rec, next *reservation.Record, command reservation.Command) *reservation.Record {
	kept := *next
	switch d {
	case LosesHistory:
		kept.History, kept.Evidence = nil, nil
	case LosesSpent:
		kept.Spent = make([]reservation.ShortDigest, len(next.Spent))
	case LosesCheckpoint:
		kept.Checkpoint = nil
	case CutsBodies:
		if kept.Result != nil && len(kept.Result.Body) > 64<<10 {
			result := *kept.Result
			result.Body = result.Body[:64<<10]
			kept.Result = &result
		}
	case LeaseInMillis:
		kept.LeaseExpiresAt -= kept.LeaseExpiresAt % 1000
	case ReusesFence:
		if rec == nil {
			kept.Fence = 1
		}
	case LosesExtensions:
		if _, extends := command.(*reservation.Extend); extends {
			kept.LeaseExpiresAt = rec.LeaseExpiresAt
		}
	case RepinsPolicy:
		if reserve, reserves := command.(*reservation.Reserve); reserves {
			kept.PolicyVersion = reserve.PolicyVersion
		}
	case LosesErasure:
		kept.ErasedAt = 0
	case ErasesNothing:
		if rec != nil && kept.ErasedAt != 0 && rec.ErasedAt == 0 {
			kept.Result, kept.ErasedAt = rec.Result, 0
		}
	case LosesTrace:
		kept.Trace = reservation.TraceContext{}
	case LosesWhole:
		kept.Result = forgetful(kept.Result)
	}
	return &kept
}

// sweeps tells whether a record is swept.
func (d Defect) sweeps(now reservation.Time, rec *reservation.Record) bool {
	switch d {
	case SweepsOpen:
		return rec.Expired(now) || rec.Lapsed(now) || rec.State == reservation.Unknown
	case SweepsEarly:
		return rec.State.Finished()
	case NeverSweeps:
		return false
	}
	return rec.Expired(now)
}
