package engine

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// The sizes of pages.
const (
	DefaultPageSize = 100
	MaxPageSize     = store.MaxBatch
)

// pageSize is how many entries a page may have.
func pageSize(asked int) (int, *reservation.Error) {
	switch {
	case asked < 0:
		return 0, reservation.Errorf(reservation.PageInvalid, "page_size", "page_size must be from 1 to %d; 0 = %d", MaxPageSize, DefaultPageSize)
	case asked == 0:
		return DefaultPageSize, nil
	}
	return min(asked, MaxPageSize), nil
}

// A page token is the digest of its query, and where the page ended. It gives no right: the
// next page is asked for with the query's own bounds again. The digest only keeps it from
// being used, by mistake, where it means nothing.
const queryDigestBytes = 16

func queryDigest(query string) []byte {
	sum := sha256.Sum256([]byte(query))
	return sum[:queryDigestBytes]
}

func pageToken(query, end string) string {
	return base64.RawURLEncoding.EncodeToString(append(queryDigest(query), end...))
}

// pageEnd is where the page ended that a token is of; empty = there is no token.
func pageEnd(query, token string) (string, *reservation.Error) {
	if token == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < queryDigestBytes || string(raw[:queryDigestBytes]) != string(queryDigest(query)) {
		return "", reservation.Errorf(reservation.PageInvalid, "page_token",
			"page_token is of another query, or no token: ask for the first page without one, and for the next with the same fields")
	}
	return string(raw[queryDigestBytes:]), nil
}

// describeQuery tells queries apart: each field is quoted.
func describeQuery(kind string, tenants []string, f reservation.Filter, more ...any) string {
	scope := "all"
	if tenants != nil {
		scope = fmt.Sprintf("%q", tenants)
	}
	return fmt.Sprintf("%s %s %q %q %q %q %q %q %d %d %v", kind, scope,
		f.Tenant, f.Namespace, f.Key, f.KeyPrefix, f.Owner, f.Actor, f.From, f.To, more)
}

// addressText is an address as a token has it; none of its parts can hold the separator.
func addressText(a reservation.Address) string {
	return a.Tenant + "\x00" + a.Namespace + "\x00" + a.Key
}

// addressOf reads what addressText wrote, or somebody has made up; empty = none.
func addressOf(text string) (reservation.Address, *reservation.Error) {
	if text == "" {
		return reservation.Address{}, nil
	}
	parts := strings.SplitN(text, "\x00", 3)
	if len(parts) != 3 || (reservation.Filter{Tenant: parts[0], Namespace: parts[1], Key: parts[2]}).Validate() != nil {
		return reservation.Address{}, reservation.Errorf(reservation.PageInvalid, "page_token", "page_token is no token")
	}
	return reservation.Address{Tenant: parts[0], Namespace: parts[1], Key: parts[2]}, nil
}
