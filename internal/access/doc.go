// Package access says who calls and what they may do: identities, their tenants and
// roles, and the credentials that prove an identity, which are bearer tokens, client
// certificates and JWTs.
//
// It may import package reservation and go-jose.
package access
