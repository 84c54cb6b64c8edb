package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/go-jose/go-jose/v4"
)

// maxKeyFileBytes is more than any set of public keys.
const maxKeyFileBytes = 1 << 20

// issuer is an Issuer with its keys.
type issuer struct {
	Issuer
	members map[string]*Identity
	keys    atomic.Pointer[keySet]
}

type keySet struct {
	text []byte
	keys []jose.JSONWebKey
}

func newIssuer(configured Issuer, byName map[string]*Identity) (*issuer, error) {
	members, err := configured.members(byName)
	i := &issuer{Issuer: configured, members: members}
	i.keys.Store(&keySet{})
	_, keysErr := i.reload()
	return i, errors.Join(err, keysErr)
}

// ReloadKeys reads the issuers' key files again and tells whether any has changed. Where
// one can't be used, the keys read before stay in force.
func (a *Authenticator) ReloadKeys() (changed bool, err error) {
	var errs []error
	for _, i := range a.issuers {
		renewed, err := i.reload()
		changed = changed || renewed
		errs = append(errs, err)
	}
	return changed, errors.Join(errs...)
}

func (i *issuer) reload() (changed bool, err error) {
	text, err := readBounded(i.KeyFile)
	if err != nil {
		return false, fmt.Errorf("JWT issuer %q: %w", i.Name, err)
	}
	if bytes.Equal(text, i.keys.Load().text) {
		return false, nil
	}
	keys, err := parseKeys(text)
	if err != nil {
		return false, fmt.Errorf("JWT issuer %q: %s: %w", i.Name, i.KeyFile, err)
	}
	i.keys.Store(&keySet{text, keys})
	return true, nil
}

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxKeyFileBytes+1))
	if err == nil && len(text) > maxKeyFileBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxKeyFileBytes)
	}
	return text, err
}

// parseKeys reads a JWK set of public keys. Errors hold nothing of the file: it may hold
// by mistake what is secret.
func parseKeys(text []byte) ([]jose.JSONWebKey, error) {
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, errors.New("it is not a JWK set")
	}
	var keys []jose.JSONWebKey
	for n, one := range set.Keys {
		var key jose.JSONWebKey
		if err := key.UnmarshalJSON(one); err != nil || !key.Valid() {
			continue // of a kind that is not known here: RFC 7517 has it passed over
		}
		if !key.IsPublic() {
			return nil, fmt.Errorf("keys[%d] is not public: put no secret in this file", n)
		}
		if key.Use != "enc" {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("it holds no key for signatures that can be used")
	}
	return keys, nil
}

// keyFor is the key that a JWT says it is signed with; one that says nothing can only
// mean an only one.
func (i *issuer) keyFor(header jose.Header) (jose.JSONWebKey, bool) {
	keys := i.keys.Load().keys
	if header.KeyID == "" && len(keys) == 1 {
		return keys[0], fits(keys[0], header)
	}
	for _, key := range keys {
		if header.KeyID != "" && key.KeyID == header.KeyID && fits(key, header) {
			return key, true
		}
	}
	return jose.JSONWebKey{}, false
}

// fits tells whether a key may be used for a signature's algorithm.
func fits(key jose.JSONWebKey, header jose.Header) bool {
	return key.Algorithm == "" || key.Algorithm == header.Algorithm
}
