package access

import (
	"crypto/x509"

	"github.com/idemd/idemd/internal/reservation"
)

// CertificateKind says which name of a certificate is meant.
type CertificateKind uint8

// The kinds of names.
const (
	URI        CertificateKind = 1 // a subject alternative name, as SPIFFE's
	DNS        CertificateKind = 2 // a subject alternative name
	CommonName CertificateKind = 3 // the subject's; only where no other can be had
)

// CertificateName is a name in a client certificate. It is compared byte for byte, and
// means what the CA that signed the certificate lets it mean.
type CertificateName struct {
	Kind  CertificateKind
	Value string
}

// ofCertificate is whose certificate it is; nil = nobody's here.
func (a *Authenticator) ofCertificate(certificate *x509.Certificate) (*Identity, *reservation.Error) {
	if certificate == nil || len(a.certificates) == 0 {
		return nil, nil
	}
	var found *Identity
	for _, name := range namesOf(certificate) {
		identity := a.certificates[name]
		if found != nil && identity != nil && identity != found {
			return nil, refuse("the client certificate has names of several identities")
		}
		if identity != nil {
			found = identity
		}
	}
	// The handshake has looked at the time, but the connection may be older than that.
	if found != nil && a.now().After(certificate.NotAfter) {
		return nil, refuse("the client certificate has expired since the connection was made")
	}
	return found, nil
}

func namesOf(certificate *x509.Certificate) []CertificateName {
	names := []CertificateName{{CommonName, certificate.Subject.CommonName}}
	for _, name := range certificate.DNSNames {
		names = append(names, CertificateName{DNS, name})
	}
	for _, uri := range certificate.URIs {
		names = append(names, CertificateName{URI, uri.String()})
	}
	return names
}
